"""Lists of unequal length in two flat arrays, whatever the size of the corpus."""

import tempfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from stages.artifacts.tables import Table


@dataclass(frozen=True)
class Ragged:
    """Row i is ``values[offsets[i]:offsets[i + 1]]``.

    Attributes:
        values: [total] numbers.
        offsets: [rows + 1] int64, from 0 to total.
    """

    values: np.ndarray
    offsets: np.ndarray

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @property
    def lengths(self) -> np.ndarray:
        """[rows] int64."""
        return np.diff(self.offsets)

    def take(self, rows: np.ndarray, longest: int | np.ndarray | None = None) -> "Ragged":
        """The rows asked for, in that order, each cut to its first ``longest`` values."""
        starts = self.offsets[rows]
        lengths = self.offsets[np.asarray(rows) + 1] - starts
        if longest is not None:
            lengths = np.minimum(lengths, longest)
        offsets = np.concatenate([[0], np.cumsum(lengths)])
        positions = np.arange(offsets[-1]) + np.repeat(starts - offsets[:-1], lengths)
        return Ragged(self.values[positions], offsets)

    def padded(self, fill: float = 0, width: int | None = None) -> np.ndarray:
        """[rows, width] with ``fill`` behind each row; ``width`` defaults to the longest row."""
        lengths = self.lengths
        width = int(lengths.max(initial=0)) if width is None else width
        out = np.full((len(self), width), fill, dtype=self.values.dtype)
        out[np.arange(width) < lengths[:, None]] = self.values
        return out

    @staticmethod
    def of(rows: Iterable[Iterable[Any]], dtype: Any) -> "Ragged":
        """From Python lists; meant for short ones."""
        arrays = [np.asarray(row, dtype=dtype) for row in rows]
        offsets = np.concatenate([[0], np.cumsum([len(array) for array in arrays])]).astype(np.int64)
        return Ragged(np.concatenate([*arrays, np.empty(0, dtype)]), offsets)


def read_ragged(table: Table, path: Path | str, column: str) -> Ragged:
    """One list column of a table, its values in an unnamed memory-mapped file.

    The operating system may drop the pages again, so that a corpus larger than memory still trains.
    """
    dtype = table.schema.field(column).type.value_type.to_pandas_dtype()
    lengths: list[np.ndarray] = [np.zeros(1, dtype=np.int64)]
    with tempfile.TemporaryFile() as file:
        for batch in table.stream(path, [column]):
            array: pa.ListArray = batch.column(column)
            lengths.append(np.diff(array.offsets.to_numpy()).astype(np.int64))
            array.flatten().to_numpy(zero_copy_only=False).tofile(file)
        file.flush()
        offsets = np.cumsum(np.concatenate(lengths))
        values = np.memmap(file, dtype=dtype, mode="r") if offsets[-1] else np.empty(0, dtype)
    return Ragged(values, offsets)
