"""How far chance alone would carry a mean, or a difference of means, over queries."""

from collections.abc import Iterator

import numpy as np

CELLS = 4_000_000  # resampled values held at once
TOLERANCE = 1e-12  # sums of the same numbers with other signs differ by rounding; relative to their absolute sum


def mean_interval(
    values: np.ndarray, draws: int = 10_000, seed: int = 0, level: float = 0.95
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Mean over queries and its bootstrap percentile interval (Efron and Tibshirani 1993, section 13.3).

    Args:
        values: [queries, columns], one query at least.
        draws: resamples of the queries; the columns share them.
        seed: of the resampling.
        level: of the interval, between 0 and 1.

    Returns:
        (mean, low, high), each [columns].
    """
    random, count = np.random.default_rng(seed), len(values)
    columns = np.ascontiguousarray(values.T, dtype=np.float64)
    means = np.empty((len(columns), draws))
    for start, stop in _chunks(draws, count):
        picked = random.integers(count, size=(stop - start, count), dtype=np.int32)
        for column, mean in zip(columns, means, strict=True):
            mean[start:stop] = column[picked].mean(axis=1)
    low, high = np.quantile(means, [(1 - level) / 2, (1 + level) / 2], axis=1)
    return columns.mean(axis=1), low, high


def paired_p(differences: np.ndarray, draws: int = 100_000, seed: int = 0) -> np.ndarray:
    """Two-sided p of a mean difference over queries by the paired randomisation test (Fisher; Smucker et al. 2007).

    Were the two systems alike, each query's difference could as well have had the other sign. p is the share of
    random sign patterns whose mean is at least as far from 0, the observed pattern counted among them:
    (1 + hits) / (1 + draws).

    Args:
        differences: [queries, columns]; the columns share the sign patterns.
        draws: sign patterns.
        seed: of the patterns.

    Returns:
        [columns].
    """
    random, count = np.random.default_rng(seed), len(differences)
    total = differences.sum(axis=0)
    least = np.abs(total) - TOLERANCE * np.abs(differences).sum(axis=0)
    hits = np.zeros(differences.shape[1], dtype=np.int64)
    for start, stop in _chunks(draws, count):
        coins = random.integers(256, size=(stop - start, -(-count // 8)), dtype=np.uint8)
        kept = np.unpackbits(coins, axis=1, count=count).astype(np.float64)
        hits += (np.abs(2 * (kept @ differences) - total) >= least).sum(axis=0)
    p: np.ndarray = (1 + hits) / (1 + draws)
    return p


def holm(p: np.ndarray) -> np.ndarray:
    """[tests] p-values adjusted for being one family (Holm 1979): compare them with the level itself."""
    order = np.argsort(p, kind="stable")
    stepped = np.maximum.accumulate(np.asarray(p)[order] * np.arange(len(p), 0, -1))
    adjusted = np.empty(len(p))
    adjusted[order] = np.minimum(stepped, 1.0)
    return adjusted


def _chunks(draws: int, count: int) -> Iterator[tuple[int, int]]:
    """(start, stop) of stretches of ``draws`` whose cells fit `CELLS`."""
    step = max(1, CELLS // max(count, 1))
    for start in range(0, draws, step):
        yield start, min(start + step, draws)
