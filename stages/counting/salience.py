"""Average mutual information of a word with its neighbours (Li et al. 2023, CDMAE, section 3.2)."""

from typing import Literal

import numpy as np

from stages.counting.ngrams import END, inside

Edges = Literal["drop", "renormalise"]


def average_information(
    words: np.ndarray, counts: list[np.ndarray], totals: dict[int, int], occurrences: np.ndarray, edges: Edges
) -> np.ndarray:
    """[positions] float64: AMI(i) = 1/(L−1) Σ_j PMI(w_{i−j} … w_i) + 1/(L−1) Σ_j PMI(w_i … w_{i+j}), j = 1 … L−1 (Eq. 8).

    PMI(w_1 … w_n) = log p(w_1 … w_n) − Σ log p(w_k), p being a count over the number of n-grams of that length.
    An n-gram that would cross the end of its passage is missing from the sums. ``drop`` keeps the factor
    1/(L−1) all the same; ``renormalise`` divides by half the number of terms that are there, which is L−1
    in the middle of a passage. A passage of one word has no term: 0.

    Args:
        words: [positions] word ids, `END` behind every passage; the values there mean nothing.
        counts: for n = 2 … L, [positions] count of the n-gram that starts here.
        totals: totals[n] is the number of n-grams of length n in the corpus.
        occurrences: count of every word of the corpus.
    """
    single = np.append(np.log(np.maximum(occurrences, 1) / max(totals[1], 1)), 0.0)[words]
    sums, terms, parts = np.zeros(len(words)), np.zeros(len(words)), single
    for n, count in enumerate(counts, start=2):
        parts = parts[:-1] + single[n - 1 :]
        here = np.flatnonzero(inside(words, n))
        information = np.log(count[here] / max(totals[n], 1)) - parts[here]
        for end in (here, here + n - 1):
            sums[end] += information
            terms[end] += 1
    return sums / (len(counts) if edges == "drop" else np.maximum(terms / 2, 0.5))


def without_ends(words: np.ndarray, values: np.ndarray) -> np.ndarray:
    """The values at words only."""
    return np.asarray(values[words != END])
