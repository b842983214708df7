"""A corpus with markup in every text, and the systems that search it: nothing trained, everything real."""

from pathlib import Path
from typing import Any

from stages.artifacts.tables import Passages, Qrels, Queries
from stages.ranking.crossencoder import load_crossencoder, save_crossencoder
from stages.searching.index import Source, opened
from stages.searching.known import Known
from stages.searching.systems import Settings, Systems
from stages.tokens import tokens
from tests.conftest import World
from tests.reporting.build import HOSTILE

LONGEST, QUERY, PAIR = 64, 24, 56


def hostile(world: World, folder: Path) -> None:
    """Copy the world's collection with markup in titles, texts and queries."""
    for table, name in ((Passages, "passages"), (Queries, "queries"), (Qrels, "qrels")):
        columns = table.read(getattr(world, name)).to_pydict()
        if "text" in columns:
            columns["text"] = [f"{text} {HOSTILE}" for text in columns["text"]]
        if "title" in columns:
            columns["title"] = [f"{HOSTILE} {title}" for title in columns["title"]]
        table.write(folder / f"{name}.parquet", columns)
    tokens(folder / "passages.parquet", world.backbone, folder / "tokens.parquet")


def source(world: World, data: Path) -> Source:
    return Source(world.backbone, data / "tokens.parquet", data / "passages.parquet", LONGEST, "fp32")


def systems(world: World, data: Path, folder: Path, reranker: bool = True) -> Systems:
    """All three systems over a collection; the cross-encoder's head is drawn."""
    if reranker:
        save_crossencoder(load_crossencoder(world.backbone, seed=3), world.backbone, folder / "reranker")
    lengths = {"longest": LONGEST, "longest_query": QUERY, "longest_pair": PAIR}
    numbers = {"candidates": 5, "prior": 50.0, "k1": 0.9, "b": 0.4, "feedback": 0, "feedback_weight": 0.2}
    rest: dict[str, Any] = lengths | numbers | {"precision": "fp32"}
    settings = Settings(world.backbone, folder / "reranker" if reranker else None, **rest)
    return Systems(opened(folder / "index", source(world, data)), settings)


def known(data: Path) -> Known:
    return Known(data / "queries.parquet", data / "qrels.parquet")
