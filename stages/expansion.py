"""Passages + the queries that they might answer → longer passages: BM25 over them is docT5query."""

from itertools import zip_longest
from pathlib import Path
from typing import Annotated

import pyarrow as pa
import pyarrow.compute as pc
import typer

from stages.artifacts.refusal import Refusal
from stages.artifacts.tables import Passages, Texts
from stages.training.progress import Progress


def expand(
    passages: Annotated[Path, typer.Argument(help="Passages table")],
    queries: Annotated[Path, typer.Argument(help="Texts table of doc2query: a line a query, a row a passage")],
    out: Annotated[Path, typer.Argument(help="Passages table to write, for bm25")],
    count: Annotated[int, typer.Option(min=1, help="queries appended to a passage, at most")] = 40,
) -> None:
    """Append generated queries to every passage's text (Nogueira and Lin 2019, docTTTTTquery)."""
    with Passages.writer(out) as writer, Progress("expand", Passages.count(passages), "passages") as bar:
        start = 0
        for batch, texts in zip_longest(Passages.stream(passages), Texts.stream(queries)):
            if batch is None or texts is None or not batch["passage_id"].equals(texts["passage_id"]):
                raise Refusal(f"{queries}: its rows from {start} on are not the passages of {passages}")
            lines = [" ".join(text.split("\n")[:count]) for text in texts["text"].to_pylist()]
            longer = pc.binary_join_element_wise(batch["text"], pa.array(lines, pa.string()), "\n")
            writer.write(batch.set_column(batch.schema.get_field_index("text"), "text", longer))
            start += batch.num_rows
            bar.advance(batch.num_rows)
