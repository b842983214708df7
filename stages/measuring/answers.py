"""Whether a passage holds an answer, as DPR's evaluation decides it (Karpukhin et al. 2020, section 5).

Text and answer are decomposed (Unicode NFD), cut into runs of letters, digits and marks and into single other visible
characters, and put into lower case; an answer is held where its tokens follow one another in the text.
"""

import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import regex

from stages.artifacts.refusal import Refusal
from stages.artifacts.tables import Answers, Passages, rows_of

TOKEN = regex.compile(r"[\p{L}\p{N}\p{M}]+|[^\p{Z}\p{C}]")


def holds(text: str, answers: Sequence[str]) -> bool:
    """Whether the tokens of one of the answers stand in ``text`` one behind the other.

    Args:
        text: the body of a passage; DPR leaves the title out.
        answers: in any of their spellings. One without a visible character is never held.
    """
    return _among(framed(text), answers)


def framed(text: str) -> str:
    """The tokens of ``text``, each between blanks, so that containment of strings is containment of tokens."""
    return f" {' '.join(TOKEN.findall(unicodedata.normalize('NFD', text)))} ".lower()


_framed_answer = lru_cache(1 << 16)(framed)  # every passage of a query is asked for the same answers


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
                if _among(found, wanted.answers[query_id]):
                    held[query_id][row["passage_id"]] = 1
    if left:
        raise Refusal(f"{passages}: passage {min(left)} of the run is not there")
    return held


def _among(found: str, answers: Sequence[str]) -> bool:
    """Whether a framed text holds one of the answers."""
    return any(answer in found for answer in map(_framed_answer, answers) if answer.strip())
