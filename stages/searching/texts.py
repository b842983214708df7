"""Passages by row in a file that is mapped rather than read: any order, and little memory."""

from pathlib import Path

import pyarrow as pa

from stages.artifacts.tables import Passages

COLUMNS = ["passage_id", "title", "text"]


def write_texts(passages: Path, out: Path) -> None:
    """Write ids, titles and texts of a Passages table as an uncompressed Arrow file."""
    schema = pa.schema([Passages.schema.field(name) for name in COLUMNS])
    with pa.OSFile(str(out), "wb") as file, pa.ipc.new_file(file, schema) as writer:
        for batch in Passages.stream(passages, COLUMNS):
            writer.write_batch(batch)


def mapped(path: Path) -> pa.Table:
    """The rows of such a file; its pages are read when they are looked at, and may be dropped again."""
    with pa.memory_map(str(path)) as file:
        return pa.ipc.open_file(file).read_all()
