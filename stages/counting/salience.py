"""Average mutual information of a word with its neighbours (Li et al. 2023, CDMAE, section 3.2)."""

from typing import Literal

import numpy as np

from stages.counting.ngrams import END

Edges = Literal["drop", "renormalise"]


def average_information(
    words: np.ndarray, counts: list[np.ndarray], totals: dict[int, int], occurrences: np.ndarray, edges: Edges
) -> np.ndarray:
    """[positions] float64: AMI(i) = 1/(L−1) Σ_j PMI(w_{i−j} … w_i) + 1/(L−1) Σ_j PMI(w_i … w_{i+j}).

    Equation 8, j = 1 … L−1, where L is the longest n-gram.

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
    sums, terms = np.zeros(len(words)), np.zeros(len(words))
    parts, inside = single, words != END
    for n, count in enumerate(counts, start=2):
        parts, inside = parts[:-1] + single[n - 1 :], inside[:-1] & (words[n - 1 :] != END)
        joint = np.log(count[: len(parts)] / max(totals[n], 1))
        information = np.where(inside, joint - parts, 0.0)
        sums[: len(parts)] += information
        sums[n - 1 :] += information
        terms[: len(parts)] += inside
        terms[n - 1 :] += inside
    return sums / (len(counts) if edges == "drop" else np.maximum(terms / 2, 0.5))


def without_ends(words: np.ndarray, values: np.ndarray) -> np.ndarray:
    """The values at words only."""
    return np.asarray(values[words != END])
