"""GLUE's measures, as its leaderboard computes them. What is not defined, for a constant prediction say, is 0."""

import numpy as np
from scipy import stats


def score(measure: str, predicted: np.ndarray, true: np.ndarray) -> float:
    """One measure by name of [n] predicted and true classes or values."""
    if measure == "accuracy":
        return float((predicted == true).mean())
    if measure == "f1":
        return _f1(predicted, true)
    return _correlation(predicted, true, "pearson" if measure == "matthews" else measure)


def _f1(predicted: np.ndarray, true: np.ndarray) -> float:
    """Of class 1."""
    hits = int((predicted * true).sum())
    return 2 * hits / max(int(predicted.sum() + true.sum()), 1)


def _correlation(predicted: np.ndarray, true: np.ndarray, kind: str) -> float:
    """Pearson's or Spearman's. Matthews' (CoLA: Warstadt et al. 2019) is Pearson's of two classes."""
    if len(predicted) < 2 or np.ptp(predicted) == 0 or np.ptp(true) == 0:
        return 0.0
    test = stats.pearsonr if kind == "pearson" else stats.spearmanr
    return float(test(predicted.astype(np.float64), true.astype(np.float64)).statistic)
