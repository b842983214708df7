"""What a run says of pairs: its score of a passage for a query, or how low it must be."""

from dataclasses import dataclass

import numpy as np

from stages.artifacts.ragged import Ragged


@dataclass(frozen=True)
class Known:
    """The scores of a run by (owner, passage).

    Attributes:
        keys: [rows] ascending: owner · passages + passage.
        scores: [rows] float32.
        lowest: [owners] float32, the least score of each owner; 0 where it has none.
        passages: how many passages there are.
    """

    keys: np.ndarray
    scores: np.ndarray
    lowest: np.ndarray
    passages: int

    @staticmethod
    def of(owner: np.ndarray, row: np.ndarray, score: np.ndarray, owners: int, passages: int) -> "Known":
        """From a run's rows: owners (0 … owners − 1), passage rows, scores."""
        keys = owner.astype(np.int64) * passages + row
        order = np.argsort(keys)
        lowest = np.full(owners, np.inf, dtype=np.float32)
        np.minimum.at(lowest, owner, score)
        return Known(keys[order], score[order], np.where(np.isfinite(lowest), lowest, np.float32(0)), passages)

    def of_rows(self, rows: Ragged) -> np.ndarray:
        """[values] float32 scores of the passages in row i for owner i, NaN where the run lacks one."""
        wanted = np.repeat(np.arange(len(rows)), rows.lengths) * self.passages + rows.values
        found = np.full(len(wanted), np.nan, dtype=np.float32)
        if len(self.keys):
            at = np.minimum(np.searchsorted(self.keys, wanted), len(self.keys) - 1)
            known = self.keys[at] == wanted
            found[known] = self.scores[at[known]]
        return found

    def or_lowest(self, rows: Ragged) -> np.ndarray:
        """[values] float32 as `of_rows`; what the run lacks has the owner's lowest score: no better than the rest."""
        found = self.of_rows(rows)
        filled: np.ndarray = np.where(np.isnan(found), np.repeat(self.lowest, rows.lengths), found)
        return filled
