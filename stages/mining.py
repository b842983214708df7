"""Retriever and passages → run, by exact search: negatives for the next retriever, rankings for evaluation."""

from pathlib import Path
from typing import Annotated

import numpy as np
import pyarrow as pa
import typer

from stages.artifacts.checkpoints import load_tokenizer
from stages.artifacts.documents import write_json
from stages.artifacts.judgements import Asked, asked, passage_ids, sorted_places
from stages.artifacts.ragged import read_ragged
from stages.artifacts.scratch import content_hash
from stages.artifacts.tables import Run, Tokens
from stages.embedding.pieces import tokenised
from stages.ranking import options
from stages.ranking.encoding import Vectors, encode
from stages.ranking.search import Index, best_backend
from stages.ranking.towers import query_folder
from stages.training.processes import join
from stages.training.progress import Progress


def mine(
    model: Annotated[Path, typer.Argument(help="Model folder of the retriever.")],
    tokens: options.TokensFile,
    queries: options.QueriesFile,
    out: options.RunOut,
    splits: options.Splits = None,
    depth: Annotated[int, typer.Option(min=1, help="Passages per query.")] = 200,
    longest: options.Longest = 128,
    longest_query: options.LongestQuery = 32,
    precision: options.Precision = "bf16",
    metrics: options.MetricsIfAny = None,
) -> None:
    """Rank the corpus for every query of some splits, exactly, with memory that does not grow with the corpus."""
    processes = join()
    asking, ids = asked(queries, splits or ["train", "dev", "test"]), passage_ids(tokens)
    pieces = read_ragged(Tokens, tokens, "pieces")
    passages = encode(model, pieces, content_hash(tokens), longest, precision, processes, "encode passages")
    asked_pieces = tokenised(asking.texts, load_tokenizer(model))
    query_hash = f"{content_hash(queries)} {splits}"
    questions = encode(
        query_folder(model), asked_pieces, query_hash, longest_query, precision, processes, "encode queries"
    )
    if processes.first:
        _write(out, asking, ids, questions, passages, depth)
        if metrics:
            write_json(metrics, _told(asking, passages, questions))


def _write(out: Path, asking: Asked, ids: pa.Array, questions: Vectors, passages: Vectors, depth: int) -> None:
    index = Index(passages, sorted_places(ids), best_backend())
    with Run.writer(out) as writer, Progress("search", len(asking), "queries") as bar:
        for start, rows, scores in index.search(questions, depth):
            count, k = rows.shape
            writer.write(
                {
                    "query_id": asking.ids.slice(start, count).take(pa.array(np.repeat(np.arange(count), k))),
                    "passage_id": ids.take(pa.array(rows.ravel())),
                    "score": scores.ravel(),
                    "rank": np.tile(np.arange(1, k + 1, dtype=np.int32), count),
                }
            )
            bar.advance(count)


def _told(asking: Asked, passages: Vectors, questions: Vectors) -> dict[str, dict[str, float]]:
    return {
        "counts": {"queries": len(asking), "passages": len(passages)},
        "speed": {"passage_tokens_per_second": passages.speed, "query_tokens_per_second": questions.speed},
    }
