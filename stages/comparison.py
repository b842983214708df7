"""Per-query values → paired tests: rows of one table, or two revisions; and the table of what every stage was worth."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import pyarrow.compute as pc
import typer

from stages.artifacts.documents import read_json, write_json
from stages.artifacts.files import whole
from stages.artifacts.refusal import Refusal
from stages.artifacts.tables import Values
from stages.measuring.contrast import contrasts, extremes, pair, shared_measures
from stages.measuring.revisions import read_texts, read_values
from stages.measuring.significance import holm, paired_p
from stages.measuring.standing import BASELINE, LEVEL, Marks, columns_of, read_rows


def compare(
    values: Annotated[
        list[str],
        typer.Argument(
            help="Values tables, in the order of the rows; or two Git revisions or experiments, or one and workspace"
        ),
    ],
    out: Annotated[Path, typer.Option(help="JSON of differences and p-values to write")],
    measures: Annotated[list[str] | None, typer.Option(help="measures that are tested; all by default")] = None,
    draws: Annotated[int, typer.Option(min=1, help="random sign patterns")] = 100_000,
    seed: Annotated[int, typer.Option(min=0, help="of the patterns")] = 0,
    folder: Annotated[Path, typer.Option(help="of revisions: where their Values tables are")] = Path("data/values"),
    queries: Annotated[Path, typer.Option(help="of revisions: the Queries table, for the texts")] = Path(
        "data/queries.parquet"
    ),
    markdown: Annotated[Path | None, typer.Option(help="of revisions: Markdown to write")] = None,
    count: Annotated[int, typer.Option(min=0, help="of revisions: queries shown that won, and that lost, most")] = 5,
) -> None:
    """Per-query values of every row → paired tests against bm25 and against the row before.

    ``compare A B`` compares every row of one revision or experiment with the same row of another.
    """
    if len(values) == 2 and not any(name.endswith(".parquet") for name in values):
        versus = Versus(values[0], values[1], folder, queries, count)
        return versus.write(out, markdown, measures, draws, seed)
    tables = [Path(name) for name in values]
    measures = measures or _measures(tables[0])
    rows = _read(tables, measures)
    pairs = _pairs(list(rows))
    report: dict[str, Any] = {name: {} for name in rows if name != BASELINE}
    for column, measure in enumerate(measures):
        differences = np.stack([rows[row][:, column] - rows[other][:, column] for row, other in pairs], axis=1)
        p = paired_p(differences, draws, seed)
        found = zip(pairs, differences.mean(axis=0).tolist(), p.tolist(), holm(p).tolist(), strict=True)
        for (row, other), difference, chance, adjusted in found:
            test = {"difference": difference, "p": chance, "holm": adjusted}
            report[row].setdefault(measure, {})[other] = test
    write_json(out, report)
    return None


@dataclass(frozen=True)
class Versus:
    """Two revisions, the second held against the first, row by row."""

    before: str
    after: str
    folder: Path
    queries: Path
    count: int

    def write(self, out: Path, markdown: Path | None, measures: list[str] | None, draws: int, seed: int) -> None:
        """Write the report as JSON, and as Markdown to a file or the terminal."""
        sides = [read_values(revision, self.folder) for revision in (self.before, self.after)]
        shared = [name for name in sides[1] if name in sides[0]]
        if not shared:
            raise Refusal(f"{self.before} and {self.after}: no row of {self.folder} is in both")
        measures = measures or shared_measures([side[name] for side in sides for name in shared])
        rows = {name: pair(name, sides[0][name], sides[1][name], measures) for name in shared}
        report = contrasts(rows, measures, draws, seed)
        shown = {name: extremes(row, 0, self.count) for name, row in rows.items()}
        texts = read_texts(self.after, self.queries)
        told = {"before": self.before, "after": self.after, "measures": report}
        told |= {"queries": {name: len(row.queries) for name, row in rows.items()}}
        write_json(out, told | {"extremes": {name: _named(found, texts) for name, found in shown.items()}})
        text = "\n".join(self._markdown(report, shown, texts)) + "\n"
        if markdown:
            with whole(markdown) as partial:
                partial.write_text(text, encoding="utf-8")
        else:
            typer.echo(text, nl=False)

    def _markdown(self, report: dict[str, Any], shown: dict[str, Any], texts: dict[str, str]) -> Iterator[str]:
        yield f"# {self.after} against {self.before}"
        for measure, rows in report.items():
            yield from ["", f"## {measure}", ""]
            yield f"| | {self.before} | {self.after} | difference [95 %] | p | Holm |"
            yield "|---|---|---|---|---|---|"
            for name, cell in rows.items():
                interval = f"{cell['difference']:+.4f} [{cell['low']:+.4f}, {cell['high']:+.4f}]"
                chance = f"{cell['p']:.4f} | {cell['holm']:.4f}"
                yield f"| {name} | {cell['before']:.4f} | {cell['after']:.4f} | {interval} | {chance} |"
        measure = next(iter(report))
        for name, found in shown.items():
            for kind, rows in found.items():
                if rows:
                    yield from ["", f"## {name}: {kind} most, by {measure}", ""]
                    yield from [f"- {a:.3f} → {b:.3f}  {_quoted(query, texts)}" for query, a, b in rows]


def _named(found: dict[str, Any], texts: dict[str, str]) -> dict[str, Any]:
    return {
        kind: [{"query": q, "text": texts.get(q, ""), "before": a, "after": b} for q, a, b in rows]
        for kind, rows in found.items()
    }


def _quoted(query: str, texts: dict[str, str]) -> str:
    return f"`{query}` {' '.join(texts.get(query, '').split())}".rstrip()


def _pairs(names: list[str]) -> list[tuple[str, str]]:
    """Every row with bm25 and with the row before it, each pair once: the tests that Holm counts for a measure."""
    pairs: dict[tuple[str, str], None] = {}
    for place, name in enumerate(names):
        if name != BASELINE:
            pairs[name, BASELINE] = None
            if place:
                pairs[name, names[place - 1]] = None
    return list(pairs)


def _measures(path: Path) -> list[str]:
    return [str(name) for name in pc.unique(Values.read(path, ["measure"])["measure"]).to_pylist()]


def _read(paths: list[Path], measures: list[str]) -> dict[str, np.ndarray]:
    """{row: [queries, measures]}. Raises `Refusal`: no bm25, a row twice, other queries, or a measure missing."""
    rows: dict[str, np.ndarray] = {}
    queries: Any = None
    for path in paths:
        if path.stem in rows:
            raise Refusal(f"{path}: there is another row {path.stem}")
        table = Values.read(path)
        columns = [table.filter(pc.equal(table["measure"], measure)) for measure in measures]
        for measure, column in zip(measures, columns, strict=True):
            if not len(column):
                raise Refusal(f"{path}: column measure: no value of {measure}")
            queries = column["query_id"] if queries is None else queries
            if not column["query_id"].equals(queries):
                raise Refusal(f"{path}: column query_id: not the queries of {paths[0]}")
        rows[path.stem] = np.stack([column["value"].to_numpy() for column in columns], axis=1)
    if BASELINE not in rows or len(rows) < 2:
        raise Refusal(f"values: a row {BASELINE} and another to hold against it are needed")
    return rows


def table(
    metrics: Annotated[Path, typer.Argument(help="folder of one collection's evaluations, a JSON a row")],
    significance: Annotated[Path, typer.Argument(help="JSON that compare wrote")],
) -> None:
    """Print what every stage was worth."""
    rows = read_rows(metrics)
    tests = read_json(significance)
    lines = [_head(next(iter(rows.values())))]
    for place, (name, row) in enumerate(rows.items()):
        marks = Marks(tests.get(name, {}), list(rows)[place - 1] if place else "")
        lines.append(_line(name, row, marks))
    typer.echo("\n".join([*lines, "", *_legend(rows)]))


def _head(row: dict[str, Any]) -> str:
    first, *others = columns_of(row)
    return f"{'':12}{first + ' [95 %]':26}" + "".join(f"{measure:10}" for measure in others).rstrip()


def _line(name: str, row: dict[str, Any], marks: Marks) -> str:
    first, *others = columns_of(row)
    interval = f"[{row[first]['low']:.3f}, {row[first]['high']:.3f}]"
    cells = [f"{row[measure]['mean']:.3f} {marks.of(measure)}  " for measure in others]
    return f"{name:11} {row[first]['mean']:.3f} {interval} {marks.of(first)}  {''.join(cells)}".rstrip()


def _legend(rows: dict[str, Any]) -> list[str]:
    one = next(iter(rows.values()))
    lines = [
        f"{one['queries']} queries of split {one['split']}; [low, high] is a 95 % bootstrap interval.",
        f"+ or - better or worse than {BASELINE}; ^ or v better or worse than the row above:",
        f"paired randomisation test, p < {LEVEL} after Holm's correction.",
    ]
    deepest = max(int(measure.partition("@")[2]) for measure in columns_of(one))
    shallow = [f"{name} {row['depth']}" for name, row in rows.items() if row["depth"] < deepest]
    if shallow:
        lines.append(f"Passages ranked a query, where fewer than {deepest}: {', '.join(shallow)}.")
    return lines
