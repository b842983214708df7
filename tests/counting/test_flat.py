"""Numbers on disk."""

from pathlib import Path

import numpy as np
import pytest

from stages.counting.flat import Flat


def test_appended_overwritten_and_read(tmp_path: Path) -> None:
    flat = Flat(np.int32, tmp_path)
    flat.append(np.arange(5))
    flat.append(np.arange(0))
    flat.append(np.arange(5, 9))
    flat.overwrite(3, np.array([-3, -4, -5]))
    assert flat.size == 9
    assert flat.read(0, 9).tolist() == [0, 1, 2, -3, -4, -5, 6, 7, 8]
    assert flat.read(8, 1).tolist() == [8]
    assert flat.read(9, 0).tolist() == []


def test_reading_beyond_the_end_is_an_error(tmp_path: Path) -> None:
    flat = Flat(np.int64, tmp_path)
    flat.append(np.arange(2))
    with pytest.raises(EOFError, match="2 values from 1 of 2"):
        flat.read(1, 2)


def test_nothing_is_left_in_the_folder(tmp_path: Path) -> None:
    flat = Flat(np.int64, tmp_path)
    flat.append(np.arange(1000))
    assert list(tmp_path.iterdir()) == []
