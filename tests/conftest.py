"""A small world for tests: made here, so that no test needs a download."""

import os
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

os.environ["OMP_NUM_THREADS"] = "1"  # before torch is imported: models of 32 dimensions only wait for more threads

from stages.artifacts.tables import Passages, Qrels, Queries
from tests.clones import clone, run  # noqa: F401

SYLLABLES = ["ba", "ke", "li", "mo", "nu", "ra", "se", "ti", "vo", "zu"]


@dataclass(frozen=True)
class World:
    """A collection of 24 documents of 1 to 4 passages, and a two-layer model of its own for it."""

    folder: Path

    def __getattr__(self, name: str) -> Path:
        for ending in (".parquet", ""):
            path: Path = self.folder / f"{name}{ending}"
            if path.exists():
                return path
        raise AttributeError(name)


def words(rng: np.random.Generator, count: int) -> list[str]:
    """Made-up words of two to four syllables, common ones more often."""
    vocabulary = ["".join(rng.choice(SYLLABLES, rng.integers(2, 5))) for _ in range(150)]
    share = 1 / np.arange(1, 151)
    return [str(word) for word in rng.choice(vocabulary, count, p=share / share.sum())]


def write_collection(folder: Path) -> None:
    """Passages, queries and qrels; a query is three words of its passage."""
    rng = np.random.default_rng(7)
    passages: dict[str, list[object]] = {
        name: [] for name in ("passage_id", "document_id", "position", "title", "text")
    }
    queries: dict[str, list[object]] = {name: [] for name in ("query_id", "text", "split")}
    qrels: dict[str, list[object]] = {name: [] for name in ("query_id", "passage_id", "relevance")}
    for document in range(24):
        for position in range(document % 4 + 1):
            name, text = f"p{document}-{position}", words(rng, int(rng.integers(12, 40)))
            for column, value in zip(
                passages, (name, f"d{document}", position, f"Document {document}", " ".join(text)), strict=True
            ):
                passages[column].append(value)
            split = ("train", "train", "train", "dev", "test")[len(queries["text"]) % 5]
            asked = " ".join(str(word) for word in rng.choice(text, 3))
            for column, value in zip(queries, (f"q-{name}", asked, split), strict=True):
                queries[column].append(value)
            for column, value in zip(qrels, (f"q-{name}", name, 1), strict=True):
                qrels[column].append(value)
    Passages.write(folder / "passages.parquet", passages)
    Queries.write(folder / "queries.parquet", queries)
    Qrels.write(folder / "qrels.parquet", qrels)


@pytest.fixture(scope="session")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    """The collection with its backbone, tokens and weights; nothing may write into it."""
    from stages.backbone import backbone
    from stages.statistics import keywords, salience
    from stages.tokens import tokens

    folder = tmp_path_factory.mktemp("world")
    write_collection(folder)
    backbone("scratch", folder / "backbone", folder / "passages.parquet", layers=2, width=32, heads=2, vocabulary=200)
    tokens(folder / "passages.parquet", folder / "backbone", folder / "tokens.parquet")
    keywords(folder / "tokens.parquet", folder / "keywords.parquet")
    salience(folder / "tokens.parquet", folder / "salience.parquet")
    return World(folder)


@pytest.fixture(autouse=True)
def scratch_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Resumable state of stages goes to the test's own folder."""
    monkeypatch.setenv("ISTHMUS_SCRATCH", str(tmp_path / "scratch"))
