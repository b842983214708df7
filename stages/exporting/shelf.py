"""Passages by row, mapped from a file of this process: groups name passages in no order of theirs."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pyarrow as pa

from stages.artifacts.tables import Passages

COLUMNS = ["passage_id", "title", "text"]


class Shelf:
    """The rows of a Passages table in any order."""

    def __init__(self, table: pa.Table):
        self.table = table

    def take(self, rows: np.ndarray) -> list[dict[str, str]]:
        """{docid, title, text} of some rows, in their order."""
        found = self.table.take(pa.array(rows)).to_pylist()
        return [{"docid": row["passage_id"], "title": row["title"], "text": row["text"]} for row in found]


@contextmanager
def shelf(passages: Path) -> Iterator[Shelf]:
    """A `Shelf` that lasts as long as the block; the operating system may drop its pages again."""
    schema = pa.schema([Passages.schema.field(name) for name in COLUMNS])
    with TemporaryDirectory(prefix="isthmus-shelf-") as folder:
        path = str(Path(folder) / "passages.arrow")
        with pa.OSFile(path, "wb") as file, pa.ipc.new_file(file, schema) as writer:
            for batch in Passages.stream(passages, COLUMNS):
                writer.write_batch(batch)
        with pa.memory_map(path) as mapped:
            yield Shelf(pa.ipc.open_file(mapped).read_all())
