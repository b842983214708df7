"""Run + answers → how often one of the first passages holds an answer: NQ's and TriviaQA's measure."""

from collections.abc import Container
from pathlib import Path
from typing import Annotated

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import typer

from stages.artifacts.documents import write_json
from stages.artifacts.refusal import Refusal
from stages.artifacts.tables import Queries, Run, Values
from stages.measuring.answers import Wanted, answered, read_answers
from stages.measuring.reports import summary, value_rows
from stages.ranking.runs import by_query
from stages.training.progress import Progress


def hits(
    run: Annotated[Path, typer.Argument(help="Run table")],
    passages: Annotated[Path, typer.Argument(help="Passages table")],
    queries: Annotated[Path, typer.Argument(help="Queries table")],
    answers: Annotated[Path, typer.Argument(help="Answers table")],
    metrics: Annotated[Path, typer.Option(help="JSON of means and intervals to write")],
    values: Annotated[Path, typer.Option(help="Values table to write: what each question is worth")],
    cutoffs: Annotated[list[int], typer.Option(min=1, help="of R@k")] = [20, 100],  # noqa: B006
    split: Annotated[str, typer.Option(help="whose questions count")] = "test",
    draws: Annotated[int, typer.Option(min=1, help="bootstrap resamples")] = 10_000,
    seed: Annotated[int, typer.Option(min=0, help="of the bootstrap")] = 0,
) -> None:
    """R@k as DPR counts it: the share of questions with an answer in the body of one of the first k passages.

    A question that the run does not rank is worth 0.
    """
    if len(set(cutoffs)) < len(cutoffs):
        raise Refusal(f"cutoffs: {', '.join(map(str, cutoffs))}: one is given twice")
    known = _known(answers, queries, split)
    rankings = _rankings(run, known, max(cutoffs))
    first = _first(rankings, answered(passages, Wanted(known, _asking(rankings))))
    worth = np.array([[first.get(query_id, np.inf) <= cutoff for cutoff in cutoffs] for query_id in known], dtype=float)
    names = [f"R@{cutoff}" for cutoff in cutoffs]
    Values.write(values, value_rows(pa.array(known, pa.string()), names, worth))
    report = {"queries": len(known), "split": split, "depth": max(map(len, rankings.values())), "relevant": "answers"}
    write_json(metrics, report | summary(names, worth, draws, seed))


def _known(answers: Path, queries: Path, split: str) -> dict[str, list[str]]:
    """The answers to the questions of a split. Raises `Refusal`: there are none."""
    asked = Queries.read(queries, ["query_id", "split"])
    known = read_answers(answers, asked.filter(pc.equal(asked["split"], split))["query_id"].to_pylist())
    if not known:
        raise Refusal(f"{answers}: no answer to a query of split {split}")
    return known


def _rankings(run: Path, known: Container[str], depth: int) -> dict[str, list[str]]:
    """The first passages of every question that counts. Raises `Refusal`: the run ranks none of them."""
    with Progress("read run", Run.count(run), "rows") as bar:
        found = {}
        for query_id, passage_ids, _ in by_query(run):
            if query_id in known:
                found[query_id] = passage_ids[:depth]
            bar.advance(len(passage_ids))
    if not found:
        raise Refusal(f"{run}: no question of it has answers")
    return found


def _asking(rankings: dict[str, list[str]]) -> dict[str, list[str]]:
    """passage_id → the questions whose ranking has it."""
    found: dict[str, list[str]] = {}
    for query_id, ranking in rankings.items():
        for passage_id in ranking:
            found.setdefault(passage_id, []).append(query_id)
    return found


def _first(rankings: dict[str, list[str]], held: dict[str, dict[str, int]]) -> dict[str, int]:
    """query_id → rank of its first passage with an answer, where there is one."""
    ranks = {
        query_id: next((rank for rank, name in enumerate(ranking, 1) if name in held[query_id]), 0)
        for query_id, ranking in rankings.items()
    }
    return {query_id: rank for query_id, rank in ranks.items() if rank}
