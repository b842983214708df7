"""What the table of the chain says of a row: its measures, and which differences chance alone would not make."""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stages.artifacts.documents import read_json
from stages.artifacts.refusal import Refusal

BASELINE = "bm25"
CHAIN = ("bm25", "backbone", "encoder", "retriever1", "retriever2", "reranker", "retriever")
COLUMNS = ("RR@10", "nDCG@10", "R@50", "R@100", "R@1000")
LEVEL = 0.05


@dataclass(frozen=True)
class Marks:
    """What the tests of one row say, in two characters a measure."""

    tests: dict[str, Any]
    previous: str

    def of(self, measure: str) -> str:
        """``+`` or ``-`` against bm25, then ``^`` or ``v`` against the row above; a space where chance may do."""
        return self._against(measure, BASELINE, "+-") + self._against(measure, self.previous, "^v")

    def _against(self, measure: str, other: str, signs: str) -> str:
        test = self.tests.get(measure, {}).get(other)
        if test is None or test["holm"] >= LEVEL:
            return " "
        return signs[test["difference"] < 0]


def read_rows(folder: Path) -> dict[str, Any]:
    """The evaluations in a folder by name, in the order of the chain, strangers behind. Raises `Refusal`: none."""
    places = {name: place for place, name in enumerate(CHAIN)}
    paths = sorted(folder.glob("*.json"), key=lambda path: (places.get(path.stem, len(CHAIN)), path.stem))
    rows = {path.stem: read_json(path) for path in paths}
    if not rows:
        raise Refusal(f"{folder}: no evaluations")
    measures = columns_of(next(iter(rows.values())))
    for path in paths:
        if not {"queries", "split", "depth", "RR@10", *measures} <= set(rows[path.stem]):
            raise Refusal(f"{path}: not an evaluation with the measures {', '.join(measures or COLUMNS)}")
    return rows


def marks_of(rows: Iterable[str], tests: dict[str, Any]) -> dict[str, Marks]:
    """The marks of each row, by name; ``tests`` is what the command significance wrote, ``rows`` are in order."""
    names = list(rows)
    return {name: Marks(tests.get(name, {}), above) for name, above in zip(names, ["", *names], strict=False)}


def columns_of(row: dict[str, Any]) -> list[str]:
    """The measures of an evaluation that the table shows."""
    return [measure for measure in COLUMNS if measure in row]
