"""Where runs rank the (query, passage) pairs that somebody asks about."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa

from stages.artifacts.judgements import Asked, rows_in
from stages.artifacts.ragged import Ragged
from stages.artifacts.tables import Run


@dataclass(frozen=True)
class Places:
    """What one run says of some pairs.

    Attributes:
        rank: [pairs] int32, 0 where the run does not rank the pair.
        score: [pairs] float32, NaN where it does not.
    """

    rank: np.ndarray
    score: np.ndarray

    def take(self, at: np.ndarray) -> "Places":
        """The pairs asked for."""
        return Places(self.rank[at], self.score[at])


def pairs_of(rows: Ragged, passages: int) -> np.ndarray:
    """[values] int64: one number for every (row, passage) of ``rows``; it grows with the row."""
    pairs: np.ndarray = np.repeat(np.arange(len(rows)), rows.lengths) * passages + rows.values
    return pairs


def placed(run: Path, asking: Asked, group_of: np.ndarray, ids: pa.Array, pairs: np.ndarray) -> Places:
    """Rank and score of some pairs, by one pass over a run.

    Args:
        group_of: [queries] the group of every query of ``asking``, −1 for none.
        pairs: ascending numbers group · len(ids) + passage row.
    """
    rank, score = np.zeros(len(pairs), dtype=np.int32), np.full(len(pairs), np.nan, dtype=np.float32)
    for batch in Run.stream(run):
        query = rows_in(batch["query_id"], asking.ids)
        owner = np.where(query >= 0, group_of[query], -1)
        kept = np.flatnonzero(owner >= 0)
        row = rows_in(batch["passage_id"].take(pa.array(kept)), ids)
        kept, row = kept[row >= 0], row[row >= 0]
        wanted = owner[kept] * len(ids) + row
        at = np.minimum(np.searchsorted(pairs, wanted), max(len(pairs) - 1, 0))
        hit = pairs[at] == wanted if len(pairs) else np.zeros(len(wanted), dtype=bool)
        rank[at[hit]] = batch["rank"].to_numpy()[kept[hit]]
        score[at[hit]] = batch["score"].to_numpy()[kept[hit]]
    return Places(rank, score)


def best_per_row(values: np.ndarray, rows: Ragged, worst: bool = False) -> np.ndarray:
    """[rows] the greatest (or least) value of every row of numbers laid out as ``rows``; NaN where there is none."""
    best = np.full(len(rows), np.nan, dtype=np.float32)
    (np.fmin if worst else np.fmax).at(best, np.repeat(np.arange(len(rows)), rows.lengths), values)
    return best
