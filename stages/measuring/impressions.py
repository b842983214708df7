"""Measures of MIND (Wu et al. 2020), of one impression each: what was clicked among what was shown."""

import numpy as np

MEASURES = ("AUC", "MRR", "nDCG@5", "nDCG@10")


def impression(scores: np.ndarray, clicked: np.ndarray) -> tuple[float, ...]:
    """`MEASURES` of one impression.

    Args:
        scores: [n] of the candidates, in the order in which a tie is broken.
        clicked: [n] bool, at least one true and one false.
    """
    ranked = clicked[np.argsort(-scores, kind="stable")]
    return auc(scores, clicked), mrr(ranked), ndcg(ranked, 5), ndcg(ranked, 10)


def auc(scores: np.ndarray, clicked: np.ndarray) -> float:
    """The share of (clicked, not clicked) pairs in the right order, a tie counting half."""
    values, place = np.unique(scores, return_inverse=True)
    yes = np.bincount(place, clicked, len(values))
    no = np.bincount(place, ~clicked, len(values))
    below = np.cumsum(no) - no
    return float(yes @ (below + no / 2) / (yes.sum() * no.sum()))


def mrr(ranked: np.ndarray) -> float:
    """The mean of 1 / rank over all clicks, not only the first: MIND's own reading of MRR. ``ranked``: best first."""
    return float((1 / (1 + np.flatnonzero(ranked))).mean())


def ndcg(ranked: np.ndarray, cutoff: int) -> float:
    """nDCG of binary gains."""
    discounts = 1 / np.log2(np.arange(2, 2 + min(cutoff, len(ranked))))
    ideal = discounts[: int(ranked.sum())].sum()
    return float(ranked[:cutoff] @ discounts / ideal)
