"""Passages by row, for groups that name passages in no order of theirs."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pyarrow as pa

from stages.searching.texts import mapped, write_texts


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
    """A `Shelf` that lasts as long as the block."""
    with TemporaryDirectory(prefix="isthmus-shelf-") as folder:
        path = Path(folder) / "passages.arrow"
        write_texts(passages, path)
        yield Shelf(mapped(path))
