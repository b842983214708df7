"""Retriever and passages → run, by exact search: negatives for the next retriever, rankings for evaluation."""

import time
from pathlib import Path
from typing import Annotated, Any

import typer

from stages.artifacts.documents import write_json
from stages.artifacts.judgements import asked
from stages.artifacts.scratch import content_hash
from stages.artifacts.tables import SPLITS
from stages.ranking import options
from stages.ranking.corpus import Corpus, Reading, vectorised
from stages.ranking.feedback import Feedback
from stages.training.precision import Precision, resolved
from stages.training.processes import join


def mine(
    model: Annotated[Path, typer.Argument(help="Model folder of the retriever.")],
    tokens: options.TokensFile,
    queries: options.QueriesFile,
    out: options.RunOut,
    splits: options.Splits = None,
    depth: Annotated[int, typer.Option(min=1, help="Passages per query.")] = 200,
    longest: options.Longest = 128,
    longest_query: options.LongestQuery = 32,
    precision: Precision = "auto",
    metrics: options.MetricsIfAny = None,
    feedback: Annotated[int, typer.Option(min=0, help="Passages found first that a query is moved towards.")] = 0,
    feedback_weight: Annotated[float, typer.Option(min=0.0, help="Of their mean beside the query.")] = 0.2,
) -> None:
    """Rank the corpus for every query of some splits, exactly, with memory that does not grow with the corpus."""
    precision = resolved(precision)
    processes, began = join(), time.monotonic()
    wanted = splits or list(SPLITS)
    asking, corpus = asked(queries, wanted), Corpus.read(tokens)
    reading = Reading(longest, longest_query, precision)
    found = vectorised(model, corpus, asking, f"{content_hash(queries)} {splits}", reading, processes)
    if processes.first:
        found.search(corpus.ids, out, asking, depth, Feedback(feedback, feedback_weight))
        if metrics:
            told: dict[str, Any] = found.told() | {"precision": precision}
            told["speed"]["seconds"] = time.monotonic() - began
            write_json(metrics, told)
