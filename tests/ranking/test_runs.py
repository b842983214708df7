"""The total order of a run: what every later stage and every measure relies on."""

from pathlib import Path

import ir_measures
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stages.artifacts.refusal import Refusal
from stages.artifacts.tables import ROWS, Run
from stages.ranking.runs import by_query, ordered, ranks_within, strictly_decreasing, write_trec

ids = st.text(st.sampled_from("ab\u00e9\uffff\U0001f600 9"), min_size=1, max_size=3)
halves = st.integers(-4, 4).map(lambda n: n / 2)


@settings(max_examples=60, deadline=None)
@given(st.dictionaries(st.tuples(ids, ids), halves, max_size=40), st.integers(1, 5) | st.none())
def test_order_is_score_then_id(scores: dict[tuple[str, str], float], depth: int | None) -> None:
    rows = [(query, passage, score) for (query, passage), score in scores.items()]
    expected = []
    for query in dict.fromkeys(query for query, _, _ in rows):
        best = sorted((-score, passage) for name, passage, score in rows if name == query)[:depth]
        expected += [(query, passage, -score, rank) for rank, (score, passage) in enumerate(best, 1)]
    found = ordered([r[0] for r in rows], [r[1] for r in rows], [r[2] for r in rows], depth)
    assert found.schema == Run.schema
    assert [tuple(row.values()) for row in found.to_pylist()] == expected


def test_scores_tie_as_float32() -> None:
    found = ordered(["q", "q"], ["b", "a"], [0.1 + 1e-12, 0.1])
    assert found["passage_id"].to_pylist() == ["a", "b"]


def test_arrow_columns_are_taken_as_they_are() -> None:
    chunked = pa.chunked_array([["q"], ["q"]])
    assert ordered(chunked, pa.array(["a", "b"]), np.array([1, 2]))["passage_id"].to_pylist() == ["b", "a"]
    assert len(ordered([], [], [])) == 0


def test_ranks_within_stretches() -> None:
    assert ranks_within(np.array([3, 3, 1, 3, 3, 3])).tolist() == [1, 2, 1, 1, 2, 3]
    assert ranks_within(np.array([])).tolist() == []


def test_read_back_across_row_groups(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    lengths = [1, ROWS - 1, 3, 2 * ROWS + 7, 5]
    queries = np.repeat([f"q{i}" for i in range(5)], lengths)
    run = ordered(queries, [f"p{i}" for i in range(len(queries))], random.normal(size=len(queries)).round(1))
    Run.write(tmp_path / "run.parquet", run)
    start = 0
    for (query_id, passages, scores), length in zip(by_query(tmp_path / "run.parquet"), lengths, strict=True):
        part = run.slice(start, length)
        assert set(part["query_id"].to_pylist()) == {query_id}
        assert passages == part["passage_id"].to_pylist()
        assert scores.dtype == np.float32
        np.testing.assert_array_equal(scores, part["score"].to_numpy())
        start += length


def test_an_empty_run_has_no_queries(tmp_path: Path) -> None:
    Run.write(tmp_path / "run.parquet", ordered([], [], []))
    assert list(by_query(tmp_path / "run.parquet")) == []


@pytest.mark.parametrize(
    ("rows", "line"),
    [
        ([("q", "a", 2, 1), ("q", "b", 1, 3)], "row 1: rank is 3, 2 was expected"),
        ([("q", "a", 2, 0), ("q", "b", 1, 1)], "row 0: rank is 0, 1 was expected"),
        ([("q", "a", 2, 1), ("q", "b", 1, 1)], "row 1: rank is 1, 2 was expected"),
        ([("q", "a", 1, 1), ("q", "b", 2, 2)], "row 1: not in order of score, then of passage_id"),
        ([("q", "b", 1, 1), ("q", "a", 1, 2)], "row 1: not in order of score, then of passage_id"),
        ([("q", "a", 1, 1), ("q", "a", 1, 2)], "row 1: not in order of score, then of passage_id"),
        ([("q", "a", 3, 1), ("q", "b", 2, 2), ("q", "a", 1, 3)], "row 0: query q has passage a twice"),
        ([("q", "a", 1, 1), ("r", "a", 1, 1), ("q", "b", 0, 1)], "row 2: the rows of query q are not together"),
    ],
)
def test_refused(tmp_path: Path, rows: list[tuple[str, str, float, int]], line: str) -> None:
    path = tmp_path / "run.parquet"
    columns = ([row[i] for row in rows] for i in range(4))
    Run.write(path, dict(zip(Run.schema.names, columns, strict=True)))
    with pytest.raises(Refusal) as refusal:
        list(by_query(path))
    assert str(refusal.value) == f"{path}: {line}"


@settings(max_examples=60, deadline=None)
@given(st.lists(st.floats(-1e6, 1e6, width=32) | st.sampled_from([0.0, -0.0, 1e-45, -1e-45]), max_size=20))
def test_strictly_decreasing_is_the_nearest(values: list[float]) -> None:
    scores = np.array(sorted(values, reverse=True), dtype=np.float32)
    written = strictly_decreasing(scores)
    assert (np.diff(written) < 0).all()
    expected, last = [], np.float32(np.inf)
    for score in scores:
        last = min(score, np.nextafter(last, np.float32(-np.inf), dtype=np.float32))
        expected.append(last)
    np.testing.assert_array_equal(written, np.array(expected, dtype=np.float32))


def test_trec_file_keeps_the_order_for_every_reader(tmp_path: Path) -> None:
    run = ordered(["q"] * 5 + ["long id"], ["e", "b", "a", "d", "c c", "x"], [1, 1, 1, 0, -0.0, 7])
    Run.write(tmp_path / "run.parquet", run)
    write_trec(by_query(tmp_path / "run.parquet"), tmp_path / "run.trec", "bm25")
    lines = (tmp_path / "run.trec").read_text().splitlines()
    assert lines[0] == "q Q0 a 1 1 bm25"
    assert lines[-1] == "long%20id Q0 x 1 7 bm25"
    read = [row for row in ir_measures.read_trec_run(str(tmp_path / "run.trec")) if row.query_id == "q"]
    best = sorted(read, key=lambda row: -np.float32(row.score))
    assert [row.doc_id for row in best] == ["a", "b", "e", "c%20c", "d"]
    assert len({np.float32(row.score) for row in read}) == 5
