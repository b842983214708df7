"""The contracts between stages: every Parquet file that crosses one is a table of this list.

Files are streamed in row groups both ways, written to a temporary name and renamed, byte for byte the
same for the same rows, and refused with their path, row and column when they are not what they claim.
"""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from stages.artifacts.files import whole
from stages.artifacts.refusal import Refusal

ROWS = 16_384  # rows in a row group: the unit in which every stage reads and writes
SPLITS = ("train", "dev", "test")  # of queries


class Writer:
    """Collects rows of one table into full row groups, so that the bytes do not depend on the calls."""

    def __init__(self, table: "Table", path: Path | str, file: pq.ParquetWriter):
        self.table, self.path, self.file = table, path, file
        self.pending = [table.schema.empty_table()]
        self.held = self.rows = 0

    def write(self, rows: pa.Table | pa.RecordBatch | dict[str, Any]) -> None:
        """Append rows: an Arrow table or batch, or a dict of columns.

        Raises:
            Refusal: a column is missing, or a value has the wrong type, is null or is NaN.
        """
        rows = self.table.conform(rows, f"{self.path} (writing)", self.rows + self.held)
        self.pending.append(rows)
        self.held += rows.num_rows
        if self.held >= ROWS:
            self.flush(self.held - self.held % ROWS)

    def flush(self, count: int) -> None:
        """Write the first ``count`` pending rows in groups of `ROWS`."""
        held = pa.concat_tables(self.pending)
        for start in range(0, count, ROWS):
            group = held.slice(start, min(ROWS, count - start))
            self.file.write_table(group.combine_chunks(), row_group_size=ROWS)
        self.pending, self.held = [held.slice(count)], self.held - count
        self.rows += count


@dataclass(frozen=True)
class Table:
    """One contract: a name and its columns. No column and no list ever holds a null, and every float is finite."""

    name: str
    schema: pa.Schema

    @contextmanager
    def writer(self, path: Path | str) -> Iterator[Writer]:
        """A `Writer` whose file appears at ``path`` when the block ends without an error."""
        with whole(path) as partial:
            options = {"compression": "zstd", "version": "2.6", "write_page_index": True}
            with pq.ParquetWriter(partial, self.schema, **options) as file:
                writer = Writer(self, path, file)
                yield writer
                writer.flush(writer.held)

    def write(self, path: Path | str, rows: pa.Table | dict[str, Any]) -> None:
        """Write all rows at once."""
        with self.writer(path) as writer:
            writer.write(rows)

    def stream(self, path: Path | str, columns: list[str] | None = None) -> Iterator[pa.RecordBatch]:
        """Yield the rows in batches of at most `ROWS`, in file order, checked.

        Raises:
            Refusal: the file is missing, is not Parquet, has other columns, or holds a null or a NaN.
        """
        with self.open(path) as file:
            schema, start = self.part(columns), 0
            for batch in file.iter_batches(batch_size=ROWS, columns=columns):
                _refuse_holes(batch, schema, path, start)
                start += batch.num_rows
                yield batch.cast(schema)

    def read(self, path: Path | str, columns: list[str] | None = None) -> pa.Table:
        """The whole file, for tables known to be small. Raises `Refusal` as `stream` does."""
        return pa.Table.from_batches(list(self.stream(path, columns)), self.part(columns))

    def part(self, columns: list[str] | None) -> pa.Schema:
        """The schema of some columns; of all where None."""
        return self.schema if columns is None else pa.schema([self.schema.field(name) for name in columns])

    def count(self, path: Path | str) -> int:
        """The number of rows, from the footer."""
        with self.open(path) as file:
            return int(file.metadata.num_rows)

    def open(self, path: Path | str) -> pq.ParquetFile:
        """The Parquet file, its columns checked. Raises `Refusal` as `stream` does."""
        try:
            file = pq.ParquetFile(path, memory_map=False, pre_buffer=False)
        except FileNotFoundError as error:
            raise Refusal(f"{path}: no such file") from error
        except OSError as error:
            raise Refusal(f"{path}: cannot be read: {error}") from error
        except pa.ArrowInvalid as error:
            raise Refusal(f"{path}: not a Parquet file") from error
        self.refuse_schema(file.schema_arrow, path)
        return file

    def refuse_schema(self, found: pa.Schema, path: Path | str) -> None:
        """Raise `Refusal` unless ``found`` has exactly this table's columns and types, in order."""
        for field in self.schema:
            if field.name not in found.names:
                raise Refusal(f"{path}: not a {self.name} table: column {field.name} is missing")
            if found.field(field.name).type != field.type:
                kind = found.field(field.name).type
                raise Refusal(f"{path}: column {field.name} is {kind}, a {self.name} table has {field.type}")
        extra = [name for name in found.names if name not in self.schema.names]
        if extra:
            raise Refusal(f"{path}: column {extra[0]} does not belong in a {self.name} table")
        if found.names != self.schema.names:
            wanted = ", ".join(self.schema.names)
            raise Refusal(f"{path}: columns are {', '.join(found.names)}; a {self.name} table has {wanted}")

    def conform(self, rows: pa.Table | pa.RecordBatch | dict[str, Any], path: str, start: int) -> pa.Table:
        """The rows as an Arrow table of this schema, ``start`` being the first row's number in messages."""
        try:
            if isinstance(rows, dict):
                table = pa.table(rows, schema=self.schema)
            else:
                table = pa.Table.from_batches([rows]) if isinstance(rows, pa.RecordBatch) else rows
                table = table.select(self.schema.names).cast(self.schema)
        except (pa.ArrowInvalid, pa.ArrowTypeError, KeyError, TypeError, ValueError) as error:
            raise Refusal(f"{path}: not a {self.name} table: {error}") from error
        _refuse_holes(table, self.schema, path, start)
        return table


def _refuse_holes(rows: pa.Table | pa.RecordBatch, schema: pa.Schema, path: Path | str, start: int) -> None:
    for field in schema:
        column, kind = rows.column(field.name), field.type
        if hole := _hole(column, kind):
            raise Refusal(f"{path}: row {start + hole[0]}: {field.name} is {hole[1]}")
        if pa.types.is_list(kind) and (hole := _hole(pc.list_flatten(column), kind.value_type)):
            raise Refusal(f"{path}: row {start + _row_of(column, hole[0])}: {field.name} holds {hole[1]}")


def _hole(values: pa.Array | pa.ChunkedArray, kind: pa.DataType) -> tuple[int, str] | None:
    """The place of the first null, or else of the first float that is not finite, and what stands there."""
    if values.null_count:
        return int(pc.index(pc.is_null(values), True).as_py()), "null"
    if pa.types.is_floating(kind):
        finite = pc.is_finite(values)
        if not pc.all(finite, min_count=0).as_py():  # quick; where, takes longer to say
            place = int(pc.index(finite, False).as_py())
            return place, str(values[place].as_py())
    return None


def _row_of(lists: pa.Array | pa.ChunkedArray, place: int) -> int:
    """The row whose list holds a place of all values."""
    ends = pc.cumulative_sum(pc.cast(pc.list_value_length(lists), pa.int64()))
    return int(pc.index(pc.greater(ends, place), True).as_py())


def rows_of(batches: Iterable[pa.RecordBatch]) -> Iterator[dict[str, Any]]:
    """The rows of streamed batches as dicts, for the places where a row is what one thinks in."""
    for batch in batches:
        yield from batch.to_pylist()


def _table(name: str, **columns: pa.DataType) -> Table:
    return Table(name, pa.schema([pa.field(column, kind) for column, kind in columns.items()]))


_text, _ids = pa.string(), pa.list_(pa.int32())

Passages = _table("Passages", passage_id=_text, document_id=_text, position=pa.int32(), title=_text, text=_text)
Queries = _table("Queries", query_id=_text, text=_text, split=_text)
Qrels = _table("Qrels", query_id=_text, passage_id=_text, relevance=pa.int8())
Answers = _table("Answers", query_id=_text, answer=_text)  # one row an answer
Tokens = _table(
    "Tokens",
    passage_id=_text,
    pieces=_ids,
    words=_ids,
    word_of_piece=pa.list_(pa.int16()),
)
Weights = _table("Weights", passage_id=_text, weight=pa.list_(pa.float32()))
Texts = _table("Texts", passage_id=_text, text=_text)
Run = _table("Run", query_id=_text, passage_id=_text, score=pa.float32(), rank=pa.int32())
Values = _table("Values", query_id=_text, measure=_text, value=pa.float64())
