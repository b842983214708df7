"""What generators read: passages in blocks, and the training pairs."""

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from stages.artifacts.refusal import Refusal
from stages.artifacts.tables import Passages, Qrels, Queries

COLUMNS = ["passage_id", "document_id", "title", "text"]


def blocks(passages: Path, rows: int) -> Iterator[pa.Table]:
    """Yield the passages in order, ``rows`` at a time, whatever the row groups of the file."""
    held: pa.Table | None = None
    for batch in Passages.stream(passages, COLUMNS):
        fresh = pa.Table.from_batches([batch])
        held = fresh if held is None else pa.concat_tables([held, fresh])
        while held.num_rows >= rows:
            yield held.slice(0, rows)
            held = held.slice(rows)
    if held is not None and held.num_rows:
        yield held


def texts(block: pa.Table) -> list[str]:
    """Title and text of every passage, as the encoder reads them."""
    pairs = zip(block["title"].to_pylist(), block["text"].to_pylist(), strict=True)
    return [f"{title} {text}" if title else text for title, text in pairs]


class Pair(NamedTuple):
    """A passage and a training query that it answers."""

    passage: str
    query: str


def training_pairs(passages: Path, queries: Path, qrels: Path) -> list[Pair]:
    """The positives of the training split, in the order of the qrels; no other query is even kept.

    Raises:
        Refusal: there are none, or one names a passage that does not exist.
    """
    asked = _training_queries(queries)
    judged = _judged(qrels, asked)
    if not judged:
        raise Refusal(f"{qrels}: no passage is judged relevant to a training query of {queries}; name a checkpoint")
    found: dict[str, str] = {}
    wanted = pa.array(sorted({passage for _, _, passage in judged}))
    for batch in Passages.stream(passages, COLUMNS):
        rows = pa.Table.from_batches([batch.filter(pc.is_in(batch.column("passage_id"), value_set=wanted))])
        found.update(zip(rows["passage_id"].to_pylist(), texts(rows), strict=True))
    for row, _, passage in judged:
        if passage not in found:
            raise Refusal(f"{qrels}: row {row}: passage_id {passage!r} is not in {passages}")
    return [Pair(found[passage], asked[query]) for _, query, passage in judged]


def _training_queries(queries: Path) -> dict[str, str]:
    asked: dict[str, str] = {}
    for batch in Queries.stream(queries):
        training = batch.filter(pc.equal(batch.column("split"), "train"))
        asked.update(zip(training["query_id"].to_pylist(), training["text"].to_pylist(), strict=True))
    return asked


def _judged(qrels: Path, asked: dict[str, str]) -> list[tuple[int, str, str]]:
    """(row, query_id, passage_id) of the positives."""
    judged, start = [], 0
    for batch in Qrels.stream(qrels):
        columns = (batch.column(name).to_pylist() for name in ("query_id", "passage_id", "relevance"))
        rows = enumerate(zip(*columns, strict=True), start)
        judged += [(row, query, passage) for row, (query, passage, grade) in rows if grade > 0 and query in asked]
        start += batch.num_rows
    return judged
