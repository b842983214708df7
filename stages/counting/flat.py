"""One long array of numbers in an unnamed file: read and written by explicit calls, so memory stays flat."""

import tempfile
from pathlib import Path
from typing import Any

import numpy as np


class Flat:
    """A growing array on disk; the file has no name and vanishes with the process, however that ends."""

    def __init__(self, dtype: Any, folder: Path):
        self.dtype = np.dtype(dtype)
        self.size = 0
        self.file = tempfile.TemporaryFile(dir=folder)  # noqa: SIM115 (it lives as long as the array)

    def append(self, values: np.ndarray) -> None:
        """Add values at the end."""
        self.overwrite(self.size, values)
        self.size += len(values)

    def overwrite(self, start: int, values: np.ndarray) -> None:
        """Write values from index ``start`` on."""
        self.file.seek(start * self.dtype.itemsize)
        self.file.write(np.ascontiguousarray(values, self.dtype).data)

    def read(self, start: int, count: int) -> np.ndarray:
        """[count] values from index ``start`` on."""
        values = np.empty(count, self.dtype)
        self.file.seek(start * self.dtype.itemsize)
        if self.file.readinto(values.data) != values.nbytes:  # type: ignore[attr-defined]
            raise EOFError(f"{count} values from {start} of {self.size}")
        return values
