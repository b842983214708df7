"""A run's total order: score descending, then passage_id ascending, ranks strict from 1."""

from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from stages.artifacts.files import whole
from stages.artifacts.refusal import Refusal
from stages.artifacts.tables import Run

Ranking = tuple[str, list[str], np.ndarray]


def ordered(query_ids: Any, passage_ids: Any, scores: Any, depth: int | None = None) -> pa.Table:
    """The rows of a Run table in the total order, at most ``depth`` a query.

    Scores become float32 before they are compared, so that a tie in the file is a tie here; ids compare by
    code point, as Lucene's do. Queries keep the order of their first appearance.

    Args:
        query_ids: [rows] strings.
        passage_ids: [rows] strings, no passage twice for one query.
        scores: [rows] finite numbers.
        depth: how many passages to keep a query; all when None.
    """
    queries = _strings(query_ids).dictionary_encode()
    columns = {
        "query": queries.indices,
        "passage_id": _strings(passage_ids),
        "score": pa.array(np.asarray(scores, dtype=np.float32)),
    }
    keys = [("query", "ascending"), ("score", "descending"), ("passage_id", "ascending")]
    rows = pa.table(columns)
    rows = rows.take(pc.sort_indices(rows, sort_keys=keys))
    ranks = ranks_within(rows["query"].to_numpy())
    run = pa.table(
        [pc.take(queries.dictionary, rows["query"]), rows["passage_id"], rows["score"], pa.array(ranks)],
        schema=Run.schema,
    )
    return run if depth is None else run.filter(pa.array(ranks <= depth))


def ranks_within(groups: np.ndarray) -> np.ndarray:
    """[rows] int32 counting from 1 within each stretch of equal values of ``groups``."""
    positions = np.arange(len(groups), dtype=np.int64)
    starts = np.ones(len(groups), dtype=bool)
    starts[1:] = groups[1:] != groups[:-1]
    return (positions - np.maximum.accumulate(np.where(starts, positions, 0)) + 1).astype(np.int32)


def by_query(path: Path | str) -> Iterator[Ranking]:
    """Yield each query of a run once, as (query_id, passage_ids, scores [passages] float32), best first.

    Memory grows with one query's ranking, not with the run.

    Raises:
        Refusal: not a Run table; a query's rows are apart; ranks do not count 1, 2, 3, …; rows are not in the
            total order; or a passage appears twice for a query.
    """
    seen: set[str] = set()
    for start, rows in _whole_queries(path):
        _refuse_disorder(rows, path, start)
        passages, scores = rows["passage_id"].to_pylist(), rows["score"].to_numpy()
        bounds = np.append(np.flatnonzero(rows["rank"].to_numpy() == 1), len(rows))
        for begin, end in pairwise(bounds):
            query_id, found = rows["query_id"][begin].as_py(), passages[begin:end]
            if query_id in seen:
                raise Refusal(f"{path}: row {start + begin}: the rows of query {query_id} are not together")
            if len(set(found)) < len(found):
                raise Refusal(f"{path}: row {start + begin}: query {query_id} has passage {_twice(found)} twice")
            seen.add(query_id)
            yield query_id, found, scores[begin:end]


def write_trec(rankings: Iterator[Ranking], path: Path | str, tag: str) -> None:
    """Write ``qid Q0 docid rank score tag`` lines, the form that trec_eval reads.

    trec_eval ignores the rank, sorts by a float32 score and breaks ties in its own way, so equal scores are
    written one float apart. White space in an id, which would break the line, is written ``%20``.
    """
    with whole(path) as partial, partial.open("w", encoding="utf-8", newline="\n") as file:
        for query_id, passage_ids, scores in rankings:
            passages = pc.replace_substring_regex(pa.array(passage_ids, pa.string()), r"\s", "%20")
            ranks = pa.array(np.arange(1, len(scores) + 1)).cast(pa.string())
            written = pa.array(strictly_decreasing(scores)).cast(pa.string())
            head = f"{'%20'.join(query_id.split())} Q0"
            lines = pc.binary_join_element_wise(head, passages, ranks, written, tag, " ")
            file.writelines(f"{line}\n" for line in lines.to_pylist())


def strictly_decreasing(scores: np.ndarray) -> np.ndarray:
    """[n] float32: the nearest scores below which no two are equal, given scores that never rise.

    On the integers that order floats, "each at least one below the one before" is a running minimum.
    """
    bits = np.ascontiguousarray(scores, dtype=np.float32).view(np.int32).astype(np.int64)
    floor = np.int64(-(2**31))
    keys = np.where(bits < 0, floor - bits, bits)
    steps = np.arange(len(keys))
    keys = np.minimum.accumulate(keys + steps) - steps
    return np.where(keys < 0, floor - keys, keys).astype(np.int32).view(np.float32)


def _strings(values: Any) -> pa.Array:
    if isinstance(values, pa.ChunkedArray):
        return values.combine_chunks()
    return values if isinstance(values, pa.Array) else pa.array(values, pa.string())


def _whole_queries(path: Path | str) -> Iterator[tuple[int, pa.Table]]:
    """Yield (number of the first row, rows) with no query cut in two, unless its rows are apart in the file."""
    held, start = Run.schema.empty_table(), 0
    for batch in Run.stream(path):
        held = pa.concat_tables([held, pa.Table.from_batches([batch])]).combine_chunks()
        finished = np.flatnonzero(pc.not_equal(held["query_id"], held["query_id"][-1]).to_numpy())
        if len(finished):
            cut = int(finished[-1]) + 1
            yield start, held.slice(0, cut)
            held, start = held.slice(cut), start + cut
    if len(held):
        yield start, held


def _refuse_disorder(rows: pa.Table, path: Path | str, start: int) -> None:
    """Raise `Refusal` at the first row out of the total order."""
    queries = rows["query_id"].combine_chunks().dictionary_encode().indices.to_numpy()
    ranks, scores = rows["rank"].to_numpy(), rows["score"].to_numpy()
    wrong = np.flatnonzero(ranks != ranks_within(queries))
    if len(wrong):
        row = int(wrong[0])
        raise Refusal(f"{path}: row {start + row}: rank is {ranks[row]}, {ranks_within(queries)[row]} was expected")
    passages = rows["passage_id"]
    rises = np.asarray(pc.less_equal(passages.slice(1), passages.slice(0, max(len(rows) - 1, 0))))
    tied = (scores[1:] == scores[:-1]) & rises
    wrong = np.flatnonzero((queries[1:] == queries[:-1]) & ((scores[1:] > scores[:-1]) | tied))
    if len(wrong):
        raise Refusal(f"{path}: row {start + int(wrong[0]) + 1}: not in order of score, then of passage_id")


def _twice(ids: list[str]) -> str:
    seen: set[str] = set()
    return next(name for name in ids if name in seen or seen.add(name))  # type: ignore[func-returns-value]
