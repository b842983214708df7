"""Passages + queries → run, by Lucene's BM25: the first row of the table and the first negatives."""

import math
import os
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import chain
from pathlib import Path
from typing import Annotated

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import typer

from stages.artifacts.refusal import Refusal
from stages.artifacts.tables import Passages, Queries, Run
from stages.ranking.lexical import Searcher, index
from stages.ranking.runs import ordered
from stages.training.progress import Progress

QUERIES = 256  # searched between two writes


def bm25(
    passages: Annotated[Path, typer.Argument(help="Passages table")],
    queries: Annotated[Path, typer.Argument(help="Queries table")],
    out: Annotated[Path, typer.Argument(help="Run table to write")],
    depth: Annotated[int, typer.Option(min=1, help="passages a query")] = 200,
    k1: Annotated[float, typer.Option(min=0, help="saturation of term frequency")] = 0.9,
    b: Annotated[float, typer.Option(min=0, max=1, help="normalisation by passage length")] = 0.4,
    splits: Annotated[list[str] | None, typer.Option(help="splits whose queries are searched; all by default")] = None,
    threads: Annotated[int | None, typer.Option(min=1, help="search threads; one a core by default")] = None,
) -> None:
    """Passages and queries → run, by Lucene."""
    for name, value in (("k1", k1), ("b", b)):
        if not math.isfinite(value):
            raise Refusal(f"{name}: {value} is not a finite number")
    asked = _asked(queries, splits)
    if not Passages.count(passages):
        raise Refusal(f"{passages}: no passages")
    with tempfile.TemporaryDirectory(prefix="isthmus-bm25-") as folder:
        index(_texts(passages), Path(folder))
        pool = ThreadPoolExecutor(threads or os.cpu_count() or 1)
        with pool, Searcher(Path(folder), k1, b) as searcher, Run.writer(out) as writer:
            for rows in _searched(asked, searcher, depth, pool):
                writer.write(rows)


def _asked(path: Path, splits: list[str] | None) -> pa.Table:
    """The queries of the splits, in file order. Raises `Refusal`: none, or a query_id twice."""
    asked = Queries.read(path)
    if splits:
        asked = asked.filter(pc.is_in(asked["split"], pa.array(splits, pa.string())))
    if not len(asked):
        raise Refusal(f"{path}: no query of splits {', '.join(splits)}" if splits else f"{path}: no queries")
    counts = pc.value_counts(asked["query_id"])
    twice = counts.filter(pc.greater(counts.field("counts"), 1))
    if len(twice):
        raise Refusal(f"{path}: column query_id: {twice[0]['values']} is there twice")
    return asked


def _texts(path: Path) -> Iterator[tuple[list[str], list[str]]]:
    """Batches of (passage_ids, title and text)."""
    with Progress("index", Passages.count(path), "passages") as bar:
        for batch in Passages.stream(path, ["passage_id", "title", "text"]):
            texts = pc.binary_join_element_wise(batch["title"], batch["text"], " ")
            yield batch["passage_id"].to_pylist(), texts.to_pylist()
            bar.advance(batch.num_rows)


def _searched(asked: pa.Table, searcher: Searcher, depth: int, pool: ThreadPoolExecutor) -> Iterator[pa.Table]:
    with Progress("search", len(asked), "queries") as bar:
        for start in range(0, len(asked), QUERIES):
            part = asked.slice(start, QUERIES)
            found = list(searcher.rank(part["text"].to_pylist(), depth, pool))
            counts = [len(scores) for _, scores in found]
            query_ids = part["query_id"].take(pa.array(np.repeat(np.arange(len(part)), counts)))
            passage_ids = list(chain.from_iterable(names for names, _ in found))
            yield ordered(query_ids, passage_ids, np.concatenate([scores for _, scores in found]), depth)
            bar.advance(len(part))
