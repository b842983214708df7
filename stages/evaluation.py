"""Run + qrels → measures with intervals, per-query values, and the run in TREC's form."""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import pyarrow as pa
import pyarrow.compute as pc
import typer

from stages.artifacts.documents import write_json
from stages.artifacts.refusal import Refusal
from stages.artifacts.tables import Queries, Run, Values
from stages.measuring.measures import DEFAULTS, Judgements, judged, parse, per_query
from stages.measuring.reports import summary, value_rows
from stages.ranking.runs import Ranking, by_query, write_trec
from stages.training.progress import Progress

CUTOFFS = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000)  # of the recall curve
FALLBACK = "dev"  # the split that stands in where the collection lacks the one asked for


def evaluate(
    run: Annotated[Path, typer.Argument(help="Run table")],
    queries: Annotated[Path, typer.Argument(help="Queries table")],
    qrels: Annotated[Path, typer.Argument(help="Qrels table")],
    metrics: Annotated[Path, typer.Option(help="JSON of means and intervals to write")],
    values: Annotated[Path, typer.Option(help="Values table to write: what each query is worth")],
    trec: Annotated[Path, typer.Option(help="TREC run file to write, of the queries evaluated")],
    recall: Annotated[Path | None, typer.Option(help="JSON of the recall-by-cutoff curve to write")] = None,
    measures: Annotated[list[str], typer.Option(help="by ir-measures' names")] = list(DEFAULTS),  # noqa: B006
    split: Annotated[str, typer.Option(help="whose queries count; dev where the collection lacks it")] = "test",
    drop_identical: Annotated[
        bool, typer.Option(help="leave out a passage that has the query's own id, as BEIR does")
    ] = False,
    draws: Annotated[int, typer.Option(min=1, help="bootstrap resamples")] = 10_000,
    seed: Annotated[int, typer.Option(min=0, help="of the bootstrap")] = 0,
) -> None:
    """Run and qrels → measures with intervals, and per-query values."""
    asked = parse(measures)
    extra = [measure for measure in parse(f"R@{k}" for k in CUTOFFS) if measure not in asked] if recall else []
    split, judgements = _judged(queries, qrels, split)
    names = [str(measure) for measure in asked]
    name = metrics.stem
    with Progress(f"evaluate {name}", Run.count(run), "rows") as bar:
        found: dict[str, int] = {}
        rankings = _counted(_rankings(run, drop_identical), judgements, found, bar)
        everything = per_query(rankings, judgements, [*asked, *extra])
    if not found:
        raise Refusal(f"{run}: no query of split {split}")
    worth, ids = everything[:, : len(asked)], pa.array(judgements, pa.string())
    Values.write(values, value_rows(ids, names, worth))
    write_trec((ranking for ranking in _rankings(run, drop_identical) if ranking[0] in judgements), trec, name)
    report: dict[str, Any] = {"queries": len(judgements), "split": split, "depth": max(found.values())}
    write_json(metrics, report | summary(names, worth, draws, seed))
    if recall:
        means = dict(zip(map(str, [*asked, *extra]), everything.mean(0).tolist(), strict=True))
        write_json(recall, [{"cutoff": k, "recall": means[f"R@{k}"]} for k in CUTOFFS])


def _rankings(run: Path, drop_identical: bool) -> Iterator[Ranking]:
    """The rankings of a run; of ArguAna's and Quora's, whose queries are documents, without the query itself."""
    for query_id, passage_ids, scores in by_query(run):
        others = [row for row, name in enumerate(passage_ids) if not drop_identical or name != query_id]
        whole = len(others) == len(passage_ids)
        yield (
            query_id,
            passage_ids if whole else [passage_ids[row] for row in others],
            scores if whole else scores[others],
        )


def _judged(queries: Path, qrels: Path, split: str) -> tuple[str, Judgements]:
    """The split that is evaluated, and its judgements. Raises `Refusal`: no query of it is judged."""
    table = Queries.read(queries, ["query_id", "split"])
    for chosen in dict.fromkeys([split, FALLBACK]):
        ids = table.filter(pc.equal(table["split"], chosen))["query_id"]
        judgements = judged(qrels, ids.to_pylist())
        if judgements:
            if chosen != split:
                print(f"evaluate: no judged query of split {split}, so split {chosen}", file=sys.stderr)
            return chosen, judgements
    raise Refusal(f"{qrels}: no query of split {split} has a relevant passage")


def _counted(
    rankings: Iterator[Ranking], judgements: Judgements, found: dict[str, int], bar: Progress
) -> Iterator[Ranking]:
    """Pass rankings on, noting in ``found`` how deep the judged ones are."""
    for ranking in rankings:
        if ranking[0] in judgements:
            found[ranking[0]] = len(ranking[1])
        yield ranking
        bar.advance(len(ranking[1]))
