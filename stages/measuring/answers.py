"""Which passages of a run hold an answer, as DPR's evaluation decides it (Karpukhin et al. 2020, section 5)."""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from stages.artifacts.answers import among, framed
from stages.artifacts.refusal import Refusal
from stages.artifacts.tables import Answers, Passages, rows_of


@dataclass(frozen=True)
class Wanted:
    """Pairs of a question and a passage that some run puts before the other.

    Attributes:
        answers: query_id → answers, of every question that counts.
        pairs: passage_id → the questions whose ranking has it.
    """

    answers: dict[str, list[str]]
    pairs: dict[str, list[str]]


def read_answers(path: Path | str, query_ids: Iterable[str]) -> dict[str, list[str]]:
    """{query_id: answers} of those queries that have any, in the order of ``query_ids``."""
    found: dict[str, list[str]] = {query_id: [] for query_id in query_ids}
    for row in rows_of(Answers.stream(path)):
        if row["query_id"] in found:
            found[row["query_id"]].append(row["answer"])
    return {query_id: answers for query_id, answers in found.items() if answers}


def answered(passages: Path | str, wanted: Wanted) -> dict[str, dict[str, int]]:
    """{query_id: {passage_id: 1}}: the passages that hold an answer, among the pairs asked for.

    The passages stream by, and each that any question wants is cut into tokens once. Their titles are not read.

    Raises:
        Refusal: a wanted passage is not there.
    """
    held: dict[str, dict[str, int]] = {query_id: {} for query_id in wanted.answers}
    left, names = set(wanted.pairs), pa.array(wanted.pairs, pa.string())
    for batch in Passages.stream(passages, ["passage_id", "text"]):
        here = pc.is_in(batch["passage_id"], names)
        for row in batch.filter(here).to_pylist():
            left.discard(row["passage_id"])
            found = framed(row["text"])
            for query_id in wanted.pairs[row["passage_id"]]:
                if among(found, wanted.answers[query_id]):
                    held[query_id][row["passage_id"]] = 1
    if left:
        raise Refusal(f"{passages}: passage {min(left)} of the run is not there")
    return held
