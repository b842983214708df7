"""Which rows make up the batch of a step: shuffled reproducibly, and alike in length, so that little is padding."""

import math
from functools import lru_cache

import numpy as np

WINDOW = 64  # batches among which rows are sorted by length: enough to be alike, few enough to stay shuffled


class Buckets:
    """Batches of rows without end, each epoch a new shuffle; step → rows is a pure function of the seed.

    Args:
        lengths: [rows] of every row; rows shorter than ``shortest`` are left out.
        batch: rows in a batch; what is left over at the end of an epoch is not used in it.
    """

    def __init__(self, lengths: np.ndarray, batch: int, seed: int, shortest: int = 1):
        self.lengths, self.seed = lengths, seed
        self.rows = np.flatnonzero(lengths >= shortest)
        self.batch = min(batch, len(self.rows))
        self.per_epoch = len(self.rows) // self.batch if self.batch else 0
        self.plan = lru_cache(2)(self._plan)

    def __call__(self, step: int) -> np.ndarray:
        """[batch] the rows of a step, by rising length."""
        epoch, place = divmod(step, self.per_epoch)
        rows: np.ndarray = self.plan(epoch)[place]
        return rows

    def _plan(self, epoch: int) -> np.ndarray:
        """[batches, batch] the rows of an epoch."""
        generator = np.random.Generator(np.random.SFC64([self.seed, epoch]))
        rows = generator.permutation(self.rows)[: self.per_epoch * self.batch]
        for start in range(0, len(rows), WINDOW * self.batch):
            window = rows[start : start + WINDOW * self.batch]
            rows[start : start + len(window)] = window[np.argsort(self.lengths[window], kind="stable")]
        planned: np.ndarray = rows.reshape(-1, self.batch)[generator.permutation(self.per_epoch)]
        return planned


def cut(lengths: np.ndarray, padded: int, padding: float = math.inf) -> list[slice]:
    """Cut rows of rising length into runs whose padded size stays within ``padded``; a longer row runs alone.

    Args:
        padding: a run ends where the next row would make it waste more than that.
    """
    runs, start, real = [], 0, 0
    for end, length in enumerate(lengths.tolist()):
        wide = (end + 1 - start) * length
        if end > start and (wide > padded or wide - real - length > padding):
            runs.append(slice(start, end))
            start, real = end, 0
        real += length
    return [*runs, slice(start, len(lengths))] if len(lengths) else []
