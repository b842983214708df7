"""Retriever + run → run: the retriever's order of given candidates, as in the re-ranking columns of SEED's tables."""

from pathlib import Path
from typing import Annotated

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import typer

from stages.artifacts.checkpoints import load_tokenizer
from stages.artifacts.documents import write_json
from stages.artifacts.judgements import Asked, asked, passage_ids, rows_in
from stages.artifacts.ragged import read_ragged
from stages.artifacts.refusal import Refusal
from stages.artifacts.scratch import content_hash
from stages.artifacts.tables import SPLITS, Run, Tokens
from stages.embedding.pieces import tokenised
from stages.ranking.bags import has_bag
from stages.ranking.encoding import Vectors, Wanted, encode
from stages.ranking.runs import by_query, ordered
from stages.ranking.towers import query_folder
from stages.training.precision import Precision, resolved
from stages.training.processes import join
from stages.training.progress import Progress


def match(
    model: Annotated[Path, typer.Argument(help="Model folder of the retriever.")],
    run: Annotated[Path, typer.Argument(help="Run whose passages are scored.")],
    tokens: Annotated[Path, typer.Argument(help="Tokens table of the corpus.")],
    queries: Annotated[Path, typer.Argument(help="Queries table.")],
    out: Annotated[Path, typer.Argument(help="Run to write.")],
    splits: Annotated[list[str] | None, typer.Option(help="Splits to score; by default all three.")] = None,
    depth: Annotated[int, typer.Option(min=1, help="Passages of the run that are scored per query.")] = 1000,
    longest: Annotated[int, typer.Option(min=3, help="Pieces of a passage, special ones included.")] = 128,
    longest_query: Annotated[int, typer.Option(min=3, help="Pieces of a query, special ones included.")] = 32,
    precision: Precision = "auto",
    metrics: Annotated[Path | None, typer.Option(help="JSON file to write.")] = None,
) -> None:
    """Score the candidates of a run by the product of vectors; only what the run holds is encoded."""
    precision = resolved(precision)
    if has_bag(model):
        raise Refusal(f"{model}: vectors with a bag of words are searched (mine), not matched")
    processes, asks = join(), query_folder(model)
    asking, ids = asked(queries, splits or list(SPLITS)), passage_ids(tokens)
    wanted = _wanted(run, asking, ids, depth)
    pieces = read_ragged(Tokens, tokens, "pieces").take(wanted)
    texts = f"{content_hash(tokens)} {content_hash(run)} {content_hash(queries)} {splits} {depth}"
    passages = encode(model, Wanted(pieces, texts, longest, "encode passages"), precision, processes)
    asked_pieces = tokenised(asking.texts, load_tokenizer(asks))
    query_hash = f"{content_hash(queries)} {splits}"
    wanted_queries = Wanted(asked_pieces, query_hash, longest_query, "encode queries")
    questions = encode(asks, wanted_queries, precision, processes)
    if processes.first:
        _write(out, run, asking, ids.take(pa.array(wanted)), questions, passages, depth)
        if metrics:
            write_json(metrics, {"counts": {"queries": len(asking), "passages": len(wanted)}})


def _wanted(run: Path, asking: Asked, ids: pa.Array, depth: int) -> np.ndarray:
    """[n] rows of the passages that the run holds for our queries, ascending.

    Raises:
        Refusal: one is not among the tokens, or the run holds nothing for our queries.
    """
    names = pa.array([], pa.string())
    for batch in Run.stream(run, ["query_id", "passage_id", "rank"]):
        ours = pc.and_(pc.is_in(batch["query_id"], asking.ids), pc.less_equal(batch["rank"], depth))
        names = pc.unique(pa.concat_arrays([names, batch["passage_id"].filter(ours)]))
    rows = rows_in(names, ids)
    if not len(names):
        raise Refusal(f"{run}: nothing for the queries of {asking.path}")
    if (rows < 0).any():
        raise Refusal(f"{run}: passage_id {names[int(np.argmin(rows))]} is not among the tokens'")
    return np.sort(rows)


def _write(
    out: Path, run: Path, asking: Asked, names: pa.Array, questions: Vectors, passages: Vectors, depth: int
) -> None:
    place = {query_id: row for row, query_id in enumerate(asking.ids.to_pylist())}
    with Run.writer(out) as writer, Progress("match", len(place), "queries") as bar:
        for query_id, found, _ in by_query(run):
            if query_id in place:
                top = pa.array(found[:depth], pa.string())
                vectors = passages.take(rows_in(top, names))
                scores = vectors @ questions.take(np.array([place[query_id]]))[0]
                writer.write(ordered(pa.array([query_id] * len(top), pa.string()), top, scores))
                bar.advance(1)
