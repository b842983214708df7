"""Several rankings of one query added up: by reciprocal ranks, or by interpolated scores."""

from collections.abc import Callable, Sequence

import numpy as np

# scores of a ranking, best first → what each passage is worth, and at the end what one is worth that is not ranked
Worth = Callable[[np.ndarray], np.ndarray]


def add_up(
    rankings: Sequence[tuple[np.ndarray, np.ndarray]], weights: Sequence[float], worth: Worth
) -> tuple[np.ndarray, np.ndarray]:
    """Passages and scores of some rankings, best first → (every passage once, ascending; float64 sums)."""
    every = np.unique(np.concatenate([passages for passages, _ in rankings]))
    total = np.zeros(len(every))
    for (passages, scores), weight in zip(rankings, weights, strict=True):
        each, places = worth(scores.astype(np.float64)), np.full(len(every), len(passages))
        places[np.searchsorted(every, passages)] = np.arange(len(passages))
        total += weight * each[places]
    return every, total


def reciprocal(constant: float) -> Worth:
    """1 / (constant + rank), 0 for what is not ranked (Cormack et al. 2009)."""

    def worth(scores: np.ndarray) -> np.ndarray:
        return np.append(1 / (constant + np.arange(1, len(scores) + 1)), 0.0)

    return worth


def min_max(scores: np.ndarray) -> np.ndarray:
    """1 for the best, 0 for the last and for what is not ranked."""
    if not len(scores):
        return np.zeros(1)
    span = scores[0] - scores[-1]
    return np.append((scores - scores[-1]) / span if span else np.ones(len(scores)), 0.0)


def raw(scores: np.ndarray) -> np.ndarray:
    """Scores as they are; the lowest for what is not ranked: all that is known of it is that it is no better."""
    return np.append(scores, scores[-1])
