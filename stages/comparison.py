"""Per-query values of every row → paired tests, and the table of what every stage was worth."""

from pathlib import Path
from typing import Annotated, Any

import numpy as np
import pyarrow.compute as pc
import typer

from stages.artifacts.documents import read_json, write_json
from stages.artifacts.refusal import Refusal
from stages.artifacts.tables import Values
from stages.measuring.significance import holm, paired_p
from stages.measuring.standing import BASELINE, LEVEL, Marks, columns_of, marks_of, read_rows

SUMMARY = ("RR@10", "nDCG@10", "R@100")  # of the columns of `dvc exp show`


def significance(
    values: Annotated[list[Path], typer.Argument(help="Values tables, in the order of the rows")],
    out: Annotated[Path, typer.Option(help="JSON of differences and p-values to write")],
    summary: Annotated[Path | None, typer.Option(help="JSON of the few means that compare experiments")] = None,
    measures: Annotated[list[str] | None, typer.Option(help="measures that are tested; all by default")] = None,
    draws: Annotated[int, typer.Option(min=1, help="random sign patterns")] = 100_000,
    seed: Annotated[int, typer.Option(min=0, help="of the patterns")] = 0,
) -> None:
    """Per-query values of every row → paired tests against bm25 and against the row before."""
    measures = measures or _measures(values[0])
    rows = _read(values, measures)
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
    if summary:
        write_json(summary, _means(rows, measures))


def _means(rows: dict[str, np.ndarray], measures: list[str]) -> dict[str, dict[str, float]]:
    """``{"RR@10": {"bm25": 0.5, …}, "R@100": {"retriever": 0.9}}``: the first for every row, the rest for the last."""
    first, *others = [measure for measure in SUMMARY if measure in measures] or measures[:1]
    means = {row: values.mean(axis=0).tolist() for row, values in rows.items()}
    out = {first: {row: values[measures.index(first)] for row, values in means.items()}}
    last = list(means)[-1]
    return out | {measure: {last: means[last][measures.index(measure)]} for measure in others}


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
    significance: Annotated[Path, typer.Argument(help="JSON that significance wrote")],
) -> None:
    """Print what every stage was worth."""
    rows = read_rows(metrics)
    marks = marks_of(rows, read_json(significance))
    lines = [_line(name, row, marks[name]) for name, row in rows.items()]
    typer.echo("\n".join([_head(next(iter(rows.values()))), *lines, "", *_legend(rows)]))


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
