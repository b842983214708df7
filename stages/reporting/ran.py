"""What ran: parameters, versions, speeds."""

import platform
from collections.abc import Iterable, Iterator
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from stages.artifacts.documents import read_json
from stages.artifacts.refusal import Refusal

PACKAGES = (
    "isthmus",
    "torch",
    "transformers",
    "tokenizers",
    "accelerate",
    "faiss-cpu",
    "faiss-gpu",
    "pyserini",
    "ir-measures",
    "numpy",
    "scipy",
    "pyarrow",
    "polars",
    "dvc",
)


def versions(packages: Iterable[str] = PACKAGES) -> dict[str, str]:
    """Of Python and of those of the packages that are installed."""
    found = {"Python": platform.python_version()}
    for name in packages:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


def flat(document: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """(dotted name, value) of everything in nested mappings."""
    if isinstance(document, dict):
        for name, value in document.items():
            yield from flat(value, f"{prefix}.{name}" if prefix else str(name))
    else:
        yield prefix, document


def groups_of(params: Any, path: Path) -> dict[str, dict[str, Any]]:
    """Parameters by group, single ones under "" first. Raises `Refusal`: not a mapping."""
    if not isinstance(params, dict):
        raise Refusal(f"{path}: not a mapping of parameters")
    single = {name: value for name, value in params.items() if not isinstance(value, dict)}
    groups = {name: dict(flat(value)) for name, value in params.items() if isinstance(value, dict)}
    return {"": single, **groups}


def speeds(paths: list[Path]) -> list[dict[str, Any]]:
    """{stage, seconds, rates} of the metrics that tell how fast their stage was; ``rates`` by unit."""
    rows = []
    for path in paths:
        metrics = read_json(path)
        told = metrics.get("speed")
        if told is None:
            continue
        numbers = told if isinstance(told, dict) else {"pieces": told}
        rates = {_unit(name): value for name, value in numbers.items() if name not in ("seconds", "padding")}
        seconds = numbers.get("seconds", _spent(metrics, rates))
        rows.append({"stage": _stage(path), "seconds": seconds, "rates": rates})
    return rows


def _spent(metrics: dict[str, Any], rates: dict[str, Any]) -> float | None:
    """Seconds, where the metrics count what the one rate is of; ``texts`` and texts a second."""
    ((unit, rate),) = rates.items() if len(rates) == 1 else (("", 0),)
    count = metrics.get(unit)
    return count / rate if isinstance(count, int) and rate else None


def _unit(name: str) -> str:
    """``passage_tokens_per_second`` → ``passage tokens``."""
    return name.removesuffix("_per_second").replace("_", " ")


def _stage(path: Path) -> str:
    """The stage that wrote some metrics, as dvc.yaml names it."""
    if path.parent.name != "rank":
        return path.stem
    return {"reranker": "rerank", "teacher": "teacher"}.get(path.stem, f"rank@{path.stem}")
