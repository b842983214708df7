"""Cross-encoder and run → run with the cross-encoder's scores: a teacher's, or a re-ranking."""

from pathlib import Path
from typing import Annotated, Any

import numpy as np
import pyarrow as pa
import typer

from stages.artifacts.checkpoints import load_tokenizer, load_vocabulary
from stages.artifacts.documents import write_json
from stages.artifacts.files import remove
from stages.artifacts.judgements import asked, judged, passage_ids, sorted_places
from stages.artifacts.ragged import read_ragged
from stages.artifacts.scratch import scratch
from stages.artifacts.tables import SPLITS, Run, Tokens
from stages.embedding.pieces import tokenised
from stages.ranking import options
from stages.ranking.crossencoder import Pairs, for_inference
from stages.ranking.rankings import Rankings, read_rankings
from stages.ranking.rescoring import Choice, Gate, parts, reordered, score_all
from stages.ranking.shards import Shards
from stages.training.precision import Precision, resolved
from stages.training.processes import join


def rescore(
    reranker: Annotated[Path, typer.Argument(help="Model folder of the cross-encoder.")],
    run: Annotated[Path, typer.Argument(help="Run whose passages are scored.")],
    tokens: options.TokensFile,
    queries: options.QueriesFile,
    qrels: options.QrelsFile,
    out: options.RunOut,
    splits: options.Splits = None,
    depth: Annotated[int, typer.Option(min=1, help="Passages of the run that are scored per query.")] = 200,
    positives: Annotated[
        int, typer.Option(min=0, help="Positives per query scored too, at most: for a teacher, never an evaluation.")
    ] = 0,
    keep_rest: Annotated[
        bool, typer.Option(help="Let the run's passages behind the depth follow in their old order.")
    ] = False,
    prior: Annotated[
        float, typer.Option(min=0.0, help="Weight of the run's own score, added to the cross-encoder's logit.")
    ] = 0.0,
    longest: options.LongestPair = 160,
    longest_query: options.QueryInPair = 32,
    precision: Precision = "auto",
    metrics: options.MetricsIfAny = None,
) -> None:
    """Score a run's pairs with a cross-encoder; says how much better it ranks dev than the run does."""
    precision = resolved(precision)
    settings: dict[str, Any] = {"splits": splits, "depth": depth, "positives": positives, "longest": longest}
    settings |= {"longest_query": longest_query, "precision": precision}
    processes = join()
    wanted = splits or list(SPLITS)
    asking, ids = asked(queries, wanted), passage_ids(tokens)
    choice = Choice(asking, ids, judged(qrels, asking, ids), depth, positives)
    rankings = read_rankings(run, asking, ids)  # bad input is refused before any work
    pieces = tokenised(asking.texts, load_tokenizer(reranker)), read_ragged(Tokens, tokens, "pieces")
    pairs = Pairs(*pieces, load_vocabulary(reranker), longest, longest_query)
    shards = Shards(scratch("rescore", settings, [reranker, run, tokens, queries, qrels]))
    score_all(for_inference(reranker, precision, processes.device), pairs, rankings, choice, shards, processes)
    if processes.first:
        dev = asking.splits == "dev"
        gate = Gate(choice, sorted_places(ids), dev)
        _write(out, rankings, choice, shards, gate, keep_rest, prior)
        gate.warn()
        if metrics:
            count, seconds = shards.spent()
            speed = {"pairs_per_second": count / seconds, "seconds": seconds}
            write_json(metrics, {"pairs": count, "precision": precision, "dev": gate.told(), "speed": speed})
        remove(shards.folder)


def _write(
    out: Path, rankings: Rankings, choice: Choice, shards: Shards, gate: Gate, keep_rest: bool, prior: float
) -> None:
    with Run.writer(out) as writer:
        for number, part in enumerate(parts(rankings, choice)):
            scores = np.asarray(shards.load(number)) + np.float32(prior) * part.known
            gate.see(part, scores)
            queries, rows, found, ranks = reordered(part, scores, gate.order, keep_rest)
            writer.write(
                {
                    "query_id": choice.asking.ids.take(pa.array(queries)),
                    "passage_id": choice.ids.take(pa.array(rows)),
                    "score": found,
                    "rank": ranks,
                }
            )
