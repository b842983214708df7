"""One long array of numbers in an unnamed file: read and written by explicit calls, so memory stays flat."""

import os
import tempfile
import weakref
from pathlib import Path
from typing import Any

import numpy as np


class Flat:
    """A growing array on disk; the file has no name and vanishes with the object or the process, however that ends.

    Threads may read and overwrite different parts at the same time.
    """

    def __init__(self, dtype: Any, folder: Path):
        self.dtype = np.dtype(dtype)
        self.size = 0
        with tempfile.TemporaryFile(dir=folder) as file:
            self.handle = os.dup(file.fileno())
        weakref.finalize(self, os.close, self.handle)

    def append(self, values: np.ndarray) -> None:
        """Add values at the end."""
        self.overwrite(self.size, values)
        self.size += len(values)

    def overwrite(self, start: int, values: np.ndarray) -> None:
        """Write values from index ``start`` on."""
        rest = np.ascontiguousarray(values, self.dtype).data.cast("B")
        at = start * self.dtype.itemsize
        while rest:  # the last write before a disk is full is a short one
            written = os.pwrite(self.handle, rest, at)
            rest, at = rest[written:], at + written

    def read(self, start: int, count: int) -> np.ndarray:
        """[count] values from index ``start`` on, not to be written to."""
        raw = os.pread(self.handle, count * self.dtype.itemsize, start * self.dtype.itemsize)
        values = np.frombuffer(raw, self.dtype)
        if len(values) != count:
            raise EOFError(f"{count} values from {start} of {self.size}")
        return values
