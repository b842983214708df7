"""How often words occur, and in how many passages."""

import numpy as np

from stages.counting.blocks import Block


class Frequencies:
    """Counts over the blocks added so far, indexed by word id.

    Attributes:
        occurrences: [words] int64, the collection frequency of each word.
        passages_with: [words] int64, the number of passages that hold the word: its document frequency.
        passages: the number of passages.
    """

    def __init__(self) -> None:
        self.occurrences = self.passages_with = np.zeros(0, dtype=np.int64)
        self.passages = 0

    def add(self, block: Block) -> None:
        """Count one more block."""
        self.occurrences = tally(self.occurrences, block.words)
        distinct = np.unique(_pairs(block)) & 0xFFFFFFFF
        self.passages_with = tally(self.passages_with, distinct)
        self.passages += len(block.lengths)


def tf_idf(frequencies: Frequencies, block: Block) -> np.ndarray:
    """[words] float64: occurrences of the word in its own passage × log((N + 1) / df), N and df counting passages.

    The textbook's log(N / df) with one imaginary passage more, so that a word of every passage keeps
    a weight above zero and can still be drawn.
    """
    _, inverse, times = np.unique(_pairs(block), return_inverse=True, return_counts=True)
    return np.asarray(times[inverse] * np.log((frequencies.passages + 1) / frequencies.passages_with[block.words]))


def inverse_frequency(frequencies: Frequencies, block: Block) -> np.ndarray:
    """[words] float64: 1 / occurrences of the word in the corpus, the weight of MASTER's released code."""
    return np.asarray(1 / frequencies.occurrences[block.words])


def tally(counts: np.ndarray, ids: np.ndarray) -> np.ndarray:
    """``counts`` plus one for every id, grown where an id lies beyond it."""
    more = np.bincount(ids, minlength=len(counts))
    more[: len(counts)] += counts
    return more


def _pairs(block: Block) -> np.ndarray:
    return np.asarray((block.passage << 32) | block.words)
