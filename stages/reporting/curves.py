"""The training curves that stages wrote, as DVCLive lays them out."""

import csv
from pathlib import Path
from typing import Any

from stages.artifacts.refusal import Refusal

FOLDER = Path("plots", "metrics")


def read_curves(folder: Path) -> dict[str, list[dict[str, Any]]]:
    """{stage: [{step, value, curve}]} of a folder with one folder a stage; empty where nothing was logged.

    Raises:
        Refusal: a curve is not a table of steps and numbers.
    """
    stages = sorted(path for path in folder.glob("*") if (path / FOLDER).is_dir())
    return {stage.name: [row for path in _files(stage) for row in _rows(path, stage / FOLDER)] for stage in stages}


def _files(stage: Path) -> list[Path]:
    return sorted((stage / FOLDER).rglob("*.tsv"))


def _rows(path: Path, home: Path) -> list[dict[str, Any]]:
    """One curve; its name is its path, without what says that it is a passage's."""
    name = path.relative_to(home).with_suffix("").as_posix().replace("/", " ")
    with path.open(encoding="utf-8", newline="") as file:
        rows = list(csv.reader(file, delimiter="\t"))
    try:
        return [{"step": int(step), "value": float(value), "curve": name} for step, value in rows[1:]]
    except ValueError as error:
        raise Refusal(f"{path}: not a curve of steps and numbers: {error}") from error
