"""Evaluations of many collections → one table and its macro average, every collection counting once."""

from pathlib import Path
from typing import Annotated, Any

import typer

from stages.artifacts.documents import read_json, write_json
from stages.artifacts.files import whole
from stages.artifacts.refusal import Refusal

Row = dict[str, float]


def macro(
    folders: Annotated[
        list[Path], typer.Argument(help="folders of evaluations, a folder a system, a JSON a collection")
    ],
    out: Annotated[Path, typer.Option(help="JSON to write: every collection and the average, by system")],
    table: Annotated[Path | None, typer.Option(help="Markdown table to write")] = None,
    measure: Annotated[str, typer.Option(help="that is averaged")] = "nDCG@10",
    groups: Annotated[
        list[str] | None, typer.Option(help="collections GROUP-… are averaged first, and count as one")
    ] = None,
) -> None:
    """Average a measure over collections, each counting once whatever its number of queries (BEIR's macro average).

    CQADupStack is 12 forums and one collection: ``--groups cqadupstack``.
    """
    rows = {folder.name: _grouped(_means(folder, measure), groups or []) for folder in folders}
    if len(rows) < len(folders):
        raise Refusal(f"folders: {', '.join(map(str, folders))}: two have one name")
    first = next(iter(rows))
    for name, row in rows.items():
        if row.keys() != rows[first].keys():
            lacking = min(row.keys() ^ rows[first].keys())
            raise Refusal(f"{lacking}: only one of {first} and {name} has an evaluation of it")
    collections = sorted(rows[first])
    report = {name: {system: row[name] for system, row in rows.items()} for name in collections}
    average = {system: sum(row.values()) / len(row) for system, row in rows.items()}
    write_json(out, {"measure": measure, "count": len(collections), "average": average, "collections": report})
    lines = _markdown(list(rows), measure, [*report.items(), (f"average of {len(collections)}", average)])
    typer.echo("\n".join(lines))
    if table:
        with whole(table) as partial:
            partial.write_text("\n".join(lines) + "\n", encoding="utf-8")


def _means(folder: Path, measure: str) -> Row:
    """{collection: mean} of a folder. Raises `Refusal`: no evaluation, or one without the measure."""
    found: Row = {}
    for path in sorted(folder.glob("*.json")):
        document: Any = read_json(path)
        if not isinstance(document, dict) or "mean" not in document.get(measure, {}):
            raise Refusal(f"{path}: no mean of {measure}")
        found[path.stem] = float(document[measure]["mean"])
    if not found:
        raise Refusal(f"{folder}: no evaluations")
    return found


def _grouped(means: Row, groups: list[str]) -> Row:
    """The means with every group's collections averaged into one."""
    parts: dict[str, list[float]] = {}
    for name, mean in means.items():
        group = next((group for group in groups if name.startswith(f"{group}-")), name)
        parts.setdefault(group, []).append(mean)
    return {name: sum(values) / len(values) for name, values in parts.items()}


def _markdown(systems: list[str], measure: str, rows: list[tuple[str, Row]]) -> list[str]:
    head = [f"| {measure} | {' | '.join(systems)} |", f"|---|{'---|' * len(systems)}"]
    return head + [f"| {name} | {' | '.join(f'{row[system]:.3f}' for system in systems)} |" for name, row in rows]
