"""benchmarks/cells.py: what was measured stays, and only like is held against like."""

from pathlib import Path

import pytest

from benchmarks.cells import MEASURES, Cell, Cells, Worth
from stages.artifacts.refusal import Refusal

STARTS = {"scratch": {"steps": 4, "rates": (1, 2)}}


def worth(*values: float, seconds: float = 1.0) -> Worth:
    return Worth(seconds, 10.0, {measure: list(values) for measure in MEASURES})


def test_a_stopped_run_goes_on(tmp_path: Path) -> None:
    file = tmp_path / "recipes.json"
    Cells(file, STARTS).add(Cell("abc", "scratch", "mlm", "tokens", 1, 4), worth(0.25, 1 / 3, seconds=2.0))
    Cells(file, STARTS).add(Cell("abc", "scratch", "mlm", "tokens", 2, 4), worth(0.5, 0.0, seconds=4.0))
    found = Cells(file, STARTS)
    assert [key[-1] for key in found.found] == [1, 2]
    assert found.found["abc", "scratch", "mlm", "tokens", 1][1] == worth(0.25, 0.3333, seconds=2.0)
    assert found.seconds("abc", "scratch", "mlm") == 3.0


def test_cells_of_other_sizes_are_refused(tmp_path: Path) -> None:
    file = tmp_path / "recipes.json"
    Cells(file, STARTS).add(Cell("abc", "scratch", "mlm", "tokens", 1, 4), worth(0.5))
    before = file.read_bytes()
    with pytest.raises(Refusal, match="other sizes"):
        Cells(file, {"scratch": {"steps": 5, "rates": (1, 2)}})
    assert file.read_bytes() == before


def test_a_recipe_is_held_against_the_same_seeds(tmp_path: Path) -> None:
    cells = Cells(tmp_path / "recipes.json", STARTS)
    for seed, value in ((1, 0.0), (2, 1.0)):
        cells.add(Cell("abc", "scratch", "mlm", "tokens", seed, 4), worth(value, value))
    cells.add(Cell("abc", "scratch", "simlm", "tokens", 1, 4), worth(0.25, 0.75, seconds=8.0))
    cells.add(Cell("abc", "scratch", "simlm", "time", 1, 2), worth(0.25, 0.25))
    cells.add(Cell("abc", "scratch", "seed", "tokens", 3, 4), worth(0.25, 0.25))
    lines = list(cells.tables())
    assert lines[0] == "## abc, from scratch: 2 dev queries\n"
    assert [line.split("|")[1].strip(" `") for line in lines[3:-1]] == ["mlm", "simlm", "seed"]
    mlm, simlm, seed = ([cell.strip() for cell in line.split("|")[1:-1]] for line in lines[3:-1])
    assert mlm[1:4] == ["2", "1", "0.500 ± 0.500 [0.500, 0.500]"]
    assert mlm[5:] == ["", ""]
    assert simlm[2] == "8"
    assert simlm[3].startswith("0.500 ± 0.000 [")
    assert " +0.500 (p " in simlm[3]
    assert " +0.250 (p " in simlm[5]
    assert "(p" not in seed[3]
