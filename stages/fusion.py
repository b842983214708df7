"""Runs → run: of several systems one ranking, of passages a ranking of their documents."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice, zip_longest
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import typer

from stages.artifacts.refusal import Refusal
from stages.artifacts.tables import Passages, Run
from stages.ranking.fusing import Worth, add_up, min_max, raw, reciprocal
from stages.ranking.runs import Ranking, by_query, ordered
from stages.training.progress import Progress

QUERIES = 256  # written at once
Scored = tuple[str, Any, np.ndarray]  # query_id, passage_ids, scores


def fuse(
    runs: Annotated[list[Path], typer.Argument(help="Run tables, two or more")],
    out: Annotated[Path, typer.Option(help="Run table to write")],
    by: Annotated[
        Literal["reciprocal", "interpolation"], typer.Option(help="what is added up: 1 / (constant + rank), or scores")
    ] = "reciprocal",
    weights: Annotated[list[float] | None, typer.Option(help="of the runs, in their order; all 1 by default")] = None,
    constant: Annotated[float, typer.Option(min=0, help="of reciprocal ranks")] = 60.0,
    scale: Annotated[
        Literal["min-max", "raw"], typer.Option(help="scores interpolated: 0 to 1 within a query, or as they are")
    ] = "min-max",
    depth: Annotated[int, typer.Option(min=1, help="passages a query to keep")] = 1000,
) -> None:
    """Add up runs: reciprocal rank fusion (Cormack et al. 2009), or an interpolation of scores.

    A passage that a run does not rank adds nothing by reciprocal ranks, and the run's lowest score of that query (0 by
    min-max) by interpolation: what is known of it is that it is no better. A query that a run lacks, it leaves to the
    others.
    """
    shares = weights or [1.0] * len(runs)
    if len(runs) < 2 or len(shares) != len(runs):
        raise Refusal(f"fuse: {len(runs)} runs and {len(shares)} weights; two runs at least, and a weight for each")
    worth = reciprocal(constant) if by == "reciprocal" else (min_max if scale == "min-max" else raw)
    with Progress("fuse", sum(Run.count(run) for run in runs), "rows") as bar:
        together = _joined([_counted(run, bar) for run in runs])
        _write(out, ((name, *_fused(parts, shares, worth)) for name, parts in together), depth)


def maxp(
    run: Annotated[Path, typer.Argument(help="Run table over passages")],
    passages: Annotated[Path, typer.Argument(help="Passages table: which document a passage is of")],
    out: Annotated[Path, typer.Argument(help="Run table over documents to write")],
    by: Annotated[Literal["max", "first"], typer.Option(help="the best passage's score, or the first's")] = "max",
    depth: Annotated[int, typer.Option(min=1, help="documents a query to keep")] = 100,
) -> None:
    """A run over passages → a run over their documents (MaxP and FirstP of Dai and Callan 2019).

    The first d documents by MaxP are exact where the run has d times as many passages as a document can have.
    """
    names = _distinct(run)
    documents, positions = _places(passages, names)
    with Progress("maxp", Run.count(run), "rows") as bar:
        ranked = (_document(ranking, names, documents, positions, by) for ranking in _counted(run, bar))
        _write(out, (one for one in ranked if len(one[2])), depth)


def _counted(run: Path, bar: Progress) -> Iterator[Ranking]:
    for ranking in by_query(run):
        bar.advance(len(ranking[1]))
        yield ranking


def _write(out: Path, rankings: Iterator[Scored], depth: int) -> None:
    """Write rankings in the total order, some queries at once."""
    with Run.writer(out) as writer:
        while some := list(islice(rankings, QUERIES)):
            ids = np.repeat([name for name, _, _ in some], [len(scores) for _, _, scores in some])
            found = pa.concat_arrays([pa.array(passages, pa.string()) for _, passages, _ in some])
            scores = np.concatenate([scores for _, _, scores in some])
            writer.write(ordered(pa.array(ids, pa.string()), found, scores, depth))


def _joined(runs: Sequence[Iterator[Ranking]]) -> Iterator[tuple[str, list[Ranking | None]]]:
    """(query_id, what each run has for it), each query once; one is held only until every run has come to it."""
    held: dict[str, list[Ranking | None]] = {}
    for row in zip_longest(*runs):
        for place, ranking in enumerate(row):
            if ranking is not None:
                parts = held.setdefault(ranking[0], [None] * len(runs))
                parts[place] = ranking
        for name in [ranking[0] for ranking in row if ranking is not None]:
            if name in held and None not in held[name]:
                yield name, held.pop(name)
    yield from held.items()


def _fused(parts: Iterable[Ranking | None], weights: Sequence[float], worth: Worth) -> tuple[pa.Array, np.ndarray]:
    """(passage_ids, scores float64) of one query."""
    have = [(ranking, weight) for ranking, weight in zip(parts, weights, strict=True) if ranking is not None]
    coded = pa.concat_arrays([pa.array(ids, pa.string()) for (_, ids, _), _ in have]).dictionary_encode()
    edges = np.cumsum([len(ids) for (_, ids, _), _ in have])[:-1]
    scored = zip(np.split(coded.indices.to_numpy(), edges), (scores for (_, _, scores), _ in have), strict=True)
    return coded.dictionary, add_up(list(scored), [weight for _, weight in have], worth)[1]


def _distinct(run: Path) -> pa.Array:
    """The passages of a run, each once."""
    found = pa.array([], pa.string())
    for batch in Run.stream(run, ["passage_id"]):
        found = pc.unique(pa.concat_arrays([found, batch["passage_id"]]))
    return found


def _places(passages: Path, names: pa.Array) -> tuple[pa.Array, np.ndarray]:
    """(document, position there) of every name. Raises `Refusal`: one is no passage of the table."""
    rows, parts = [], []
    for batch in Passages.stream(passages, ["passage_id", "document_id", "position"]):
        row = pc.index_in(batch["passage_id"], names)
        here = pc.is_valid(row)
        rows.append(row.filter(here))
        parts.append(batch.filter(here).select(["document_id", "position"]))
    found = pa.Table.from_batches(parts)
    of_row = np.full(len(names), -1, dtype=np.int64)
    of_row[pa.concat_arrays(rows).to_numpy()] = np.arange(len(found))
    if (of_row < 0).any():
        raise Refusal(f"{passages}: passage {names[int(np.argmin(of_row))]} of the run is not there")
    found = found.take(pa.array(of_row)).combine_chunks()
    return found["document_id"].combine_chunks(), found["position"].to_numpy()


def _document(ranking: Ranking, names: pa.Array, documents: pa.Array, positions: np.ndarray, by: str) -> Scored:
    query_id, passages, scores = ranking
    rows = pc.index_in(pa.array(passages, pa.string()), names).to_numpy()
    if by == "first":
        first = positions[rows] == 0
        rows, scores = rows[first], scores[first]
    coded = documents.take(pa.array(rows)).dictionary_encode()
    best = np.full(len(coded.dictionary), -np.inf, dtype=np.float32)
    np.maximum.at(best, coded.indices.to_numpy(), scores)
    return query_id, coded.dictionary, best
