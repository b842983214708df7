"""Queries moved towards the passages that they find first: pseudo-relevance feedback on vectors.

Rocchio's formula without its negatives, as Li et al. 2023 use it for dense retrievers (Pseudo Relevance Feedback with
Deep Language Models and Dense Retrievers, <https://arxiv.org/abs/2108.11044>, vector-based PRF). Nothing is trained.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from stages.ranking.encoding import Vectors
from stages.ranking.search import Index, Queried


@dataclass(frozen=True)
class Feedback:
    """How far a query goes, and towards what.

    Attributes:
        passages: how many of the first are taken for relevant; 0: queries stay where they are.
        weight: of the mean of their vectors beside the query's.
    """

    passages: int = 0
    weight: float = 0.2


def moved(queries: np.ndarray, mean: np.ndarray, weight: float) -> np.ndarray:
    """[n, d] float32 queries + weight · [n, d] means, each as long as it was: scores stay of the same size."""
    towards = queries + weight * mean
    was, now = (np.linalg.norm(rows, axis=1, keepdims=True) for rows in (queries, towards))
    found: np.ndarray = (towards * (was / np.where(now, now, 1))).astype(np.float32)
    return found


@dataclass(frozen=True)
class Moved:
    """Queries that are moved when they are needed; a `Queried` itself."""

    questions: Queried
    index: Index
    how: Feedback

    def __len__(self) -> int:
        return len(self.questions)

    @property
    def speed(self) -> float:
        """Real tokens encoded per second."""
        return self.questions.speed

    def blocks(self, rows: int) -> Iterator[tuple[int, np.ndarray]]:
        """Yield (first row, [≤ rows, d] float32) over all queries."""
        for start, some in self.questions.blocks(rows):
            [(_, first, _)] = self.index.search(Vectors.of(some, len(some)), self.how.passages, len(some))
            mean = sum(self.index.passages.take(place) for place in first.T) / first.shape[1]
            yield start, moved(some, mean, self.how.weight)
