"""Given candidates: judged pairs → run, and a run of all candidates + qrels → MIND's measures by impression."""

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import typer

from stages.artifacts.documents import write_json
from stages.artifacts.refusal import Refusal
from stages.artifacts.tables import Qrels, Queries, Run, Values
from stages.measuring.impressions import MEASURES, impression
from stages.measuring.reports import summary, value_rows
from stages.ranking.runs import by_query, ordered
from stages.training.progress import Progress


def candidates(
    queries: Annotated[Path, typer.Argument(help="Queries table")],
    qrels: Annotated[Path, typer.Argument(help="Qrels table: whatever is judged is a candidate")],
    out: Annotated[Path, typer.Argument(help="Run table to write, every score 0")],
    splits: Annotated[list[str] | None, typer.Option(help="splits whose queries count; all by default")] = None,
) -> None:
    """The judged passages of every query as a run: what `match` and `rescore` re-rank, and negatives for training."""
    rows = _judged(queries, qrels, splits)
    Run.write(out, ordered(rows["query_id"], rows["passage_id"], np.zeros(len(rows))))


def impressions(
    run: Annotated[Path, typer.Argument(help="Run table of all candidates")],
    queries: Annotated[Path, typer.Argument(help="Queries table")],
    qrels: Annotated[Path, typer.Argument(help="Qrels table: above 0 is clicked")],
    metrics: Annotated[Path, typer.Option(help="JSON of means and intervals to write")],
    values: Annotated[Path, typer.Option(help="Values table to write: what each impression is worth")],
    split: Annotated[str, typer.Option(help="whose impressions count")] = "dev",
    draws: Annotated[int, typer.Option(min=1, help="bootstrap resamples")] = 1_000,
    seed: Annotated[int, typer.Option(min=0, help="of the bootstrap")] = 0,
) -> None:
    """AUC, MRR, nDCG@5 and nDCG@10, averaged over impressions.

    An impression of which everything or nothing was clicked has no AUC; it is left out and counted.
    """
    judged = _judged(queries, qrels, [split])
    with Progress("impressions", Run.count(run), "rows") as bar:
        worth = dict(_worth(run, _clicks(judged), bar))
    total = pc.count_distinct(judged["query_id"]).as_py()
    if not worth:
        raise Refusal(f"{run}: no impression of split {split} with something clicked and something not")
    cells = np.array(list(worth.values()))
    Values.write(values, value_rows(pa.array(worth, pa.string()), list(MEASURES), cells))
    report: dict[str, Any] = {"queries": len(worth), "left_out": total - len(worth), "split": split}
    write_json(metrics, report | summary(list(MEASURES), cells, draws, seed))


def _judged(queries: Path, qrels: Path, splits: list[str] | None) -> pa.Table:
    """The judgements of the queries of some splits, together by query. Raises `Refusal`: there are none."""
    asked = Queries.read(queries, ["query_id", "split"])
    if splits:
        asked = asked.filter(pc.is_in(asked["split"], pa.array(splits, pa.string())))
    ids = asked["query_id"].combine_chunks()
    parts = [batch.filter(pc.is_in(batch["query_id"], ids)) for batch in Qrels.stream(qrels)]
    found = pa.Table.from_batches(parts, Qrels.schema)
    if not len(found):
        raise Refusal(f"{qrels}: no judgement of splits {', '.join(splits or ['train', 'dev', 'test'])}")
    place = pc.index_in(found["query_id"], ids)
    return found.take(pc.sort_indices(pa.table({"place": place}), sort_keys=[("place", "ascending")]))


def _clicks(judged: pa.Table) -> dict[str, dict[str, bool]]:
    """{query_id: {passage_id: clicked}}."""
    found: dict[str, dict[str, bool]] = {}
    for name, passage, relevance in zip(*(column.to_pylist() for column in judged.columns), strict=True):
        found.setdefault(name, {})[passage] = relevance > 0
    return found


def _worth(run: Path, clicks: dict[str, dict[str, bool]], bar: Progress) -> Iterator[tuple[str, tuple[float, ...]]]:
    """(query_id, its measures). Raises `Refusal`: the run lacks an impression or a candidate, or has another one."""
    left = set(clicks)
    for query_id, passage_ids, scores in by_query(run):
        shown = clicks.get(query_id)
        if shown is not None:
            left.discard(query_id)
            if set(passage_ids) != shown.keys():
                stranger = min(set(passage_ids) ^ shown.keys())
                raise Refusal(f"{run}: query {query_id}: {stranger} is not in both the run and the candidates")
            clicked = np.array([shown[name] for name in passage_ids])
            if clicked.any() and not clicked.all():
                yield query_id, impression(scores, clicked)
        bar.advance(len(passage_ids))
    if left:
        raise Refusal(f"{run}: query {min(left)} is not there")
