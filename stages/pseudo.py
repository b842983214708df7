"""Passages → titles and sentences of theirs as queries, for a corpus that nobody has asked anything yet."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import numpy as np
import pyarrow as pa
import typer

from stages.artifacts.refusal import Refusal
from stages.artifacts.tables import Passages, Qrels, Queries
from stages.training.progress import Progress

BORDER = re.compile(r"(?<=[.!?])\s+|\n\s*\n")  # lower-case collections end sentences too


def pseudo(
    passages: Annotated[Path, typer.Argument(help="Passages table")],
    queries: Annotated[Path, typer.Argument(help="Queries table to write; all of split train")],
    qrels: Annotated[Path, typer.Argument(help="Qrels table to write: the passage that a query is from")],
    count: Annotated[int, typer.Option(min=1, help="passages drawn; two queries of each at most")] = 4_000,
    shortest: Annotated[int, typer.Option(min=1, help="words of a sentence")] = 5,
    longest: Annotated[int, typer.Option(min=1, help="words of a sentence")] = 30,
    seed: Annotated[int, typer.Option(min=0, help="of the draw")] = 0,
) -> None:
    """Draw passages, and of each its title and a sentence (the inverse cloze task, Lee et al. 2019)."""
    if shortest > longest:
        raise Refusal(f"--shortest {shortest}: above --longest {longest}")
    total = Passages.count(passages)
    rows = np.sort(np.random.default_rng(seed).permutation(total)[:count])
    found = 0
    with Queries.writer(queries) as asked, Qrels.writer(qrels) as judged, Progress("pseudo", total, "passages") as bar:
        for start, batch in _batches(passages):
            here = rows[(rows >= start) & (rows < start + batch.num_rows)]
            drawn = batch.take(pa.array(here - start)).to_pylist()
            asks = [
                (f"{passage['passage_id']} {kind}", text, passage["passage_id"])
                for row, passage in zip(here, drawn, strict=True)
                for kind, text in _of(passage, (shortest, longest), np.random.default_rng([seed, int(row)]))
            ]
            ids, texts, owners = (list(column) for column in zip(*asks, strict=True)) if asks else ([], [], [])
            asked.write({"query_id": ids, "text": texts, "split": ["train"] * len(ids)})
            judged.write({"query_id": ids, "passage_id": owners, "relevance": pa.array([1] * len(ids), pa.int8())})
            found += len(asks)
            bar.advance(batch.num_rows)
        if not found:
            raise Refusal(f"{passages}: no title, and no sentence of {shortest} to {longest} words")


def _batches(passages: Path) -> Iterator[tuple[int, pa.RecordBatch]]:
    start = 0
    for batch in Passages.stream(passages, ["passage_id", "title", "text"]):
        yield start, batch
        start += batch.num_rows


def _of(passage: dict[str, str], words: tuple[int, int], rng: np.random.Generator) -> Iterator[tuple[str, str]]:
    """(kind, text) of a passage's queries."""
    if passage["title"].strip():
        yield "title", passage["title"]
    sentences = [text for text in BORDER.split(passage["text"]) if words[0] <= len(text.split()) <= words[1]]
    if sentences:
        yield "sentence", sentences[int(rng.integers(len(sentences)))]
