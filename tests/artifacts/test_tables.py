"""Tables: streamed, atomic, the same bytes, and refused with path, row and column."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from stages.artifacts.ragged import Ragged, read_ragged
from stages.artifacts.refusal import Refusal
from stages.artifacts.tables import ROWS, Qrels, Run, Texts, Tokens, Weights


def rows(count: int, start: int = 0) -> dict[str, list[str]]:
    names = [str(i) for i in range(start, start + count)]
    return {"passage_id": names, "text": [f"text {name}" for name in names]}


def test_what_is_written_is_read(tmp_path: Path) -> None:
    path = tmp_path / "texts.parquet"
    Texts.write(path, rows(5))
    assert Texts.read(path).to_pydict() == rows(5)
    assert Texts.count(path) == 5


def test_bytes_do_not_depend_on_how_rows_were_handed_over(tmp_path: Path) -> None:
    count = ROWS + 10
    Texts.write(tmp_path / "at-once.parquet", rows(count))
    with Texts.writer(tmp_path / "in-parts.parquet") as writer:
        for start in range(0, count, 1000):
            writer.write(rows(min(1000, count - start), start))
    assert (tmp_path / "at-once.parquet").read_bytes() == (tmp_path / "in-parts.parquet").read_bytes()
    assert pq.ParquetFile(tmp_path / "at-once.parquet").metadata.num_row_groups == 2


def test_an_empty_table_is_a_table(tmp_path: Path) -> None:
    with Texts.writer(tmp_path / "none.parquet"):
        pass
    assert Texts.read(tmp_path / "none.parquet").num_rows == 0


@pytest.mark.parametrize("weights", [[], [[]], [[], [], []]])
def test_empty_lists_are_lists(tmp_path: Path, weights: list[list[float]]) -> None:
    names = [str(i) for i in range(len(weights))]
    Weights.write(tmp_path / "weights.parquet", {"passage_id": names, "weight": weights})
    assert Weights.read(tmp_path / "weights.parquet")["weight"].to_pylist() == weights


def test_an_error_leaves_nothing_behind(tmp_path: Path) -> None:
    def interrupted() -> None:
        with Texts.writer(tmp_path / "texts.parquet") as writer:
            writer.write(rows(5))
            raise InterruptedError

    with pytest.raises(InterruptedError):
        interrupted()
    assert list(tmp_path.iterdir()) == []


def test_an_error_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "texts.parquet"
    Texts.write(path, rows(5))
    with pytest.raises(Refusal):
        Texts.write(path, {"passage_id": ["a"], "text": [None]})
    assert Texts.count(path) == 5


@pytest.mark.parametrize(
    ("table", "columns", "line"),
    [
        (Run, {"query_id": ["q"], "passage_id": ["p"], "score": [float("nan")], "rank": [1]}, "row 0: score is nan"),
        (Run, {"query_id": ["q"], "passage_id": ["p"], "score": [float("inf")], "rank": [1]}, "row 0: score is inf"),
        (Qrels, {"query_id": ["q", "r"], "passage_id": ["p", None], "relevance": [1, 1]}, "row 1: passage_id is null"),
    ],
)
def test_holes_are_refused_when_written(
    tmp_path: Path, table: object, columns: dict[str, list[object]], line: str
) -> None:
    with pytest.raises(Refusal, match=line):
        table.write(tmp_path / "x.parquet", columns)  # type: ignore[attr-defined]
    assert not (tmp_path / "x.parquet").exists()


def test_holes_are_refused_when_read_with_the_row_in_the_file(tmp_path: Path) -> None:
    path = tmp_path / "run.parquet"
    score = np.zeros(ROWS + 5, dtype=np.float32)
    score[ROWS + 3] = np.nan
    names = [str(i) for i in range(len(score))]
    columns = {"query_id": names, "passage_id": names, "score": score, "rank": np.arange(len(score), dtype=np.int32)}
    pq.write_table(pa.table(columns), path)
    with pytest.raises(Refusal, match=rf"run.parquet: row {ROWS + 3}: score is nan"):
        Run.read(path)


@pytest.mark.parametrize(("value", "said"), [(np.nan, "nan"), (np.inf, "inf"), (None, "null")])
def test_holes_within_lists_are_refused(tmp_path: Path, value: float | None, said: str) -> None:
    path, count = tmp_path / "weights.parquet", ROWS + 5
    names = [str(i) for i in range(count)]
    weights: list[list[float | None]] = [[0.5] * (i % 3) for i in range(count)]
    sound = pa.table({"passage_id": names, "weight": weights}, Weights.schema)
    Weights.write(path, sound)
    assert Weights.read(path).equals(sound)
    weights[ROWS + 3].append(value)
    broken = pa.table({"passage_id": names, "weight": weights}, Weights.schema)
    pq.write_table(broken, path)
    with pytest.raises(Refusal, match=rf"weights.parquet: row {ROWS + 3}: weight holds {said}$"):
        read_ragged(Weights, path, "weight")
    in_parts = pa.concat_tables([broken.slice(0, 100), broken.slice(100)])
    with pytest.raises(Refusal, match=rf"new \(writing\): row {ROWS + 3}: weight holds {said}$"):
        Weights.write(tmp_path / "new", in_parts)


def test_other_files_are_refused(tmp_path: Path) -> None:
    with pytest.raises(Refusal, match=r"nowhere.parquet: no such file"):
        Texts.read(tmp_path / "nowhere.parquet")
    (tmp_path / "prose.parquet").write_text("this is prose, not Parquet")
    with pytest.raises(Refusal, match=r"prose.parquet: not a Parquet file"):
        Texts.read(tmp_path / "prose.parquet")
    (tmp_path / "empty.parquet").touch()
    with pytest.raises(Refusal, match=r"empty.parquet: not a Parquet file"):
        Texts.read(tmp_path / "empty.parquet")
    Texts.write(tmp_path / "texts.parquet", rows(1))
    with pytest.raises(Refusal, match="not a Qrels table: column query_id is missing"):
        Qrels.read(tmp_path / "texts.parquet")
    pq.write_table(pa.table(rows(1) | {"more": [1]}), tmp_path / "more.parquet")
    with pytest.raises(Refusal, match="column more does not belong in a Texts table"):
        Texts.read(tmp_path / "more.parquet")
    pq.write_table(pa.table({"passage_id": [1], "text": ["a"]}), tmp_path / "typed.parquet")
    with pytest.raises(Refusal, match="column passage_id is int64, a Texts table has string"):
        Texts.read(tmp_path / "typed.parquet")
    pq.write_table(pa.table({"text": ["a"], "passage_id": ["1"]}), tmp_path / "turned.parquet")
    with pytest.raises(Refusal, match="columns are text, passage_id; a Texts table has passage_id, text"):
        Texts.read(tmp_path / "turned.parquet")


def test_ragged_columns_come_back_row_by_row(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    lists = [rng.integers(0, 9, rng.integers(0, 6)).tolist() for _ in range(ROWS + 100)]
    names = [str(i) for i in range(len(lists))]
    path = tmp_path / "tokens.parquet"
    Tokens.write(path, {"passage_id": names, "pieces": lists, "words": lists, "word_of_piece": lists})
    ragged = read_ragged(Tokens, path, "pieces")
    chosen = rng.integers(0, len(lists), 500)
    taken = ragged.take(chosen)
    assert [taken.values[a:b].tolist() for a, b in zip(taken.offsets, taken.offsets[1:], strict=False)] == [
        lists[row] for row in chosen
    ]
    cut = ragged.take(chosen, 2).padded(-1, 3)
    assert cut.tolist() == [(lists[row][:2] + [-1] * 3)[:3] for row in chosen]


def test_ragged_of_nothing() -> None:
    empty = Ragged.of([[], []], np.int32)
    assert len(empty) == 2
    assert empty.padded(0).shape == (2, 0)
