"""Where training stops to mine anew, and where it goes on."""

from pathlib import Path

import pytest

from stages.ranking.refresh import stretches
from stages.training.checkpoint import MARK


@pytest.mark.parametrize(
    ("done", "left"),
    [
        ([], [(0, 4), (1, 8), (2, 12)]),
        ([3], [(0, 4), (1, 8), (2, 12)]),
        ([3, 4], [(0, 4), (1, 8), (2, 12)]),  # over, but what comes next may not be mined yet
        ([4, 7], [(1, 8), (2, 12)]),
        ([8, 9], [(2, 12)]),
    ],
)
def test_stretches_that_are_over_are_left_out(tmp_path: Path, done: list[int], left: list[tuple[int, int]]) -> None:
    for step in done:
        (tmp_path / f"step-{step:09d}").mkdir()
        (tmp_path / f"step-{step:09d}" / MARK).touch()
    assert list(stretches(12, 2, tmp_path)) == left


def test_without_a_refresh_there_is_one_stretch(tmp_path: Path) -> None:
    assert list(stretches(7, 0, tmp_path)) == [(0, 7)]
