"""Random texts of one length, so that figures over positions or lengths compare like with like."""

import numpy as np

from stages.artifacts.ragged import Ragged


def of_length(pieces: Ragged, length: int, count: int, seed: int) -> np.ndarray:
    """At most ``count`` random rows that fill ``length`` pieces with their two special ones, ascending."""
    long = np.flatnonzero(pieces.lengths >= length - 2)
    return np.sort(np.random.default_rng([seed, length]).permutation(long)[:count])
