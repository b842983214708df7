"""The cells of a comparison of recipes: kept in one JSON file, shown as a table with intervals."""

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from stages.artifacts.files import whole
from stages.artifacts.refusal import Refusal
from stages.measuring.significance import mean_interval, paired_p

MEASURES = ("RR@10", "R@100")
REFERENCE = "mlm"  # every other recipe is held against it, and its time is the budget of the second column
DIGITS = 4  # of one query's value, in the file
Budget = Literal["tokens", "time"]


@dataclass(frozen=True)
class Cell:
    """One number of the table: a recipe from a start under a budget with a seed, on a corpus."""

    corpus: str
    start: str
    recipe: str
    budget: Budget
    seed: int
    steps: int

    @property
    def key(self) -> tuple[str, str, str, str, int]:
        """What tells cells apart: not how many steps a budget came to."""
        return self.corpus, self.start, self.recipe, self.budget, self.seed


@dataclass(frozen=True)
class Worth:
    """What a cell cost, and what every dev query is worth by measure."""

    pretraining_seconds: float
    pretraining_tokens: float
    values: dict[str, list[float]]


class Cells:
    """All that was measured so far, in a file that a stopped run, or another machine's, goes on with."""

    def __init__(self, file: Path, starts: dict[str, Any]):
        """Raise `Refusal` where the file's cells are of other sizes than these starts'."""
        starts = json.loads(json.dumps(starts))  # tuples as the file holds them
        known = json.loads(file.read_text()) if file.is_file() else {"starts": starts, "cells": []}
        if known["starts"] != starts:
            raise Refusal(f"{file}: its cells are of other sizes than this program's; name another file with --out")
        self.file, self.starts, self.found = file, starts, {}
        for row in known["cells"]:
            values = {measure: row.pop(measure) for measure in MEASURES}
            worth = Worth(row.pop("pretraining_seconds"), row.pop("pretraining_tokens"), values)
            cell = Cell(**row)
            self.found[cell.key] = cell, worth

    def add(self, cell: Cell, worth: Worth) -> None:
        """Keep what was measured: the file, one cell a line, and the table beside it."""
        self.found[cell.key] = cell, worth
        lines = [json.dumps(_row(*self.found[key]), sort_keys=True) for key in sorted(self.found)]
        starts = json.dumps(self.starts, sort_keys=True)
        with whole(self.file) as half:
            half.write_text(f'{{"starts": {starts},\n"cells": [\n' + ",\n".join(lines) + "\n]}\n")
        self.file.with_suffix(".md").write_text("\n".join(self.tables()) + "\n")

    def seconds(self, corpus: str, start: str, recipe: str) -> float:
        """Processor seconds of pre-training, as the cells of the first budget took them."""
        group = self._group(corpus, start, recipe, "tokens")
        return float(np.mean([worth.pretraining_seconds for _, worth in group]))

    def tables(self) -> Iterator[str]:
        """The lines of a Markdown table for every corpus and start."""
        for corpus, start in sorted({key[:2] for key in self.found}):
            queries = len(next(worth for key, (_, worth) in self.found.items() if key[0] == corpus).values[MEASURES[0]])
            yield f"## {corpus}, from {start}: {queries} dev queries\n"
            columns = [
                f"{measure}, {budget} of `{REFERENCE}`" for budget in ("passages", "time") for measure in MEASURES
            ]
            yield f"| recipe | seeds | CPU s | {' | '.join(columns)} |"
            yield "|---" * 7 + "|"
            names = {key[2] for key in self.found if key[:2] == (corpus, start)}
            yield from (line for _, line in sorted(self._line(corpus, start, name) for name in names))
            yield ""

    def _line(self, corpus: str, start: str, name: str) -> tuple[float, str]:
        """A recipe's row, the best of the first measure first."""
        first = self._group(corpus, start, name, "tokens")
        mean = float(np.mean([worth.values[MEASURES[0]] for _, worth in first])) if first else 0.0
        shown = [self._shown(corpus, start, name, budget, m) for budget in ("tokens", "time") for m in MEASURES]
        seconds = f"{self.seconds(corpus, start, name):.0f}" if first else ""
        return -mean, f"| `{name}` | {len(first)} | {seconds} | {' | '.join(shown)} |"

    def _shown(self, corpus: str, start: str, name: str, budget: str, measure: str) -> str:
        """``.512 ± .011 [.450, .571] +.021 (p .03)``: between seeds, over queries, above the reference's same seeds."""
        group = self._group(corpus, start, name, budget)
        if not group:
            return ""
        values = np.array([worth.values[measure] for _, worth in group])
        mean, low, high = (float(one[0]) for one in mean_interval(values.mean(0)[:, None]))
        shown = f"{mean:.3f} ± {values.mean(1).std():.3f} [{low:.3f}, {high:.3f}]"
        keys = [(corpus, start, REFERENCE, "tokens", cell.seed) for cell, _ in group]
        if name == REFERENCE or any(key not in self.found for key in keys):
            return shown
        above = values.mean(0) - np.mean([self.found[key][1].values[measure] for key in keys], axis=0)
        return f"{shown} {above.mean():+.3f} (p {float(paired_p(above[:, None])[0]):.2g})"

    def _group(self, corpus: str, start: str, recipe: str, budget: str) -> list[tuple[Cell, Worth]]:
        wanted = corpus, start, recipe, budget
        return [self.found[key] for key in sorted(self.found) if key[:4] == wanted]


def _row(cell: Cell, worth: Worth) -> dict[str, Any]:
    """A cell as the file holds it."""
    values = {measure: [round(value, DIGITS) for value in found] for measure, found in worth.values.items()}
    cost = {"pretraining_seconds": worth.pretraining_seconds, "pretraining_tokens": worth.pretraining_tokens}
    return asdict(cell) | {name: round(number, 1) for name, number in cost.items()} | values
