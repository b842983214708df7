"""Two Git revisions or experiments → every row of one beside the same row of the other."""

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import typer

from stages.artifacts.documents import write_json
from stages.artifacts.files import whole
from stages.artifacts.refusal import Refusal
from stages.measuring.contrast import contrasts, extremes, pair, shared_measures
from stages.measuring.revisions import read_texts, read_values

Extremes = dict[str, list[tuple[str, float, float]]]


def compare(
    before: Annotated[str, typer.Argument(help="Git revision or experiment, or `workspace`")],
    after: Annotated[str, typer.Argument(help="another, that is held against it")],
    out: Annotated[Path, typer.Option(help="JSON to write")],
    markdown: Annotated[Path | None, typer.Option(help="Markdown to write; to the terminal by default")] = None,
    measures: Annotated[list[str] | None, typer.Option(help="measures that are tested; all by default")] = None,
    values: Annotated[Path, typer.Option(help="where the Values tables are")] = Path("data/values"),
    queries: Annotated[Path, typer.Option(help="Queries table, for the texts")] = Path("data/queries.parquet"),
    count: Annotated[int, typer.Option(min=0, help="queries shown that won, and that lost, most")] = 5,
    draws: Annotated[int, typer.Option(min=1, help="random sign patterns")] = 100_000,
    seed: Annotated[int, typer.Option(min=0, help="of the patterns")] = 0,
) -> None:
    """Compare every row of one revision or experiment with the same row of another."""
    sides = [read_values(revision, values) for revision in (before, after)]
    shared = [name for name in sides[1] if name in sides[0]]
    if not shared:
        raise Refusal(f"{before} and {after}: no row of {values} is in both")
    measures = measures or shared_measures([side[name] for side in sides for name in shared])
    rows = {name: pair(name, sides[0][name], sides[1][name], measures) for name in shared}
    report = contrasts(rows, measures, draws, seed)
    shown = {name: extremes(row, 0, count) for name, row in rows.items()}
    texts = read_texts(after, queries)
    told: dict[str, Any] = {"before": before, "after": after, "measures": report}
    told |= {"queries": {name: len(row.queries) for name, row in rows.items()}}
    write_json(out, told | {"extremes": {name: _named(found, texts) for name, found in shown.items()}})
    text = "\n".join([*_tables(before, after, report), *_lists(next(iter(report)), shown, texts)]) + "\n"
    if markdown:
        with whole(markdown) as partial:
            partial.write_text(text, encoding="utf-8")
    else:
        typer.echo(text, nl=False)


def _tables(before: str, after: str, report: dict[str, Any]) -> Iterator[str]:
    yield f"# {after} against {before}"
    for measure, rows in report.items():
        yield from ["", f"## {measure}", ""]
        yield f"| | {before} | {after} | difference [95 %] | p | Holm |"
        yield "|---|---|---|---|---|---|"
        for name, cell in rows.items():
            interval = f"{cell['difference']:+.4f} [{cell['low']:+.4f}, {cell['high']:+.4f}]"
            chance = f"{cell['p']:.4f} | {cell['holm']:.4f}"
            yield f"| {name} | {cell['before']:.4f} | {cell['after']:.4f} | {interval} | {chance} |"


def _lists(measure: str, shown: dict[str, Extremes], texts: dict[str, str]) -> Iterator[str]:
    for name, found in shown.items():
        for kind, rows in found.items():
            if rows:
                yield from ["", f"## {name}: {kind} most, by {measure}", ""]
                yield from [f"- {a:.3f} → {b:.3f}  {_quoted(query, texts)}" for query, a, b in rows]


def _named(found: Extremes, texts: dict[str, str]) -> dict[str, list[dict[str, Any]]]:
    return {
        kind: [{"query": q, "text": texts.get(q, ""), "before": a, "after": b} for q, a, b in rows]
        for kind, rows in found.items()
    }


def _quoted(query: str, texts: dict[str, str]) -> str:
    return f"`{query}` {' '.join(texts.get(query, '').split())}".rstrip()
