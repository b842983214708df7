"""Passages expanded with generated queries are found by them."""

from pathlib import Path

import pytest

from stages.artifacts.refusal import Refusal
from stages.artifacts.tables import Passages, Queries, Run, Texts
from stages.bm25 import bm25
from stages.expansion import expand
from tests.conftest import World


def test_bm25_finds_what_only_the_queries_say(world: World, tmp_path: Path) -> None:
    passages = Passages.read(world.passages)
    texts = [f"plain {name}\nunheard zebra{i}\nthird" for i, name in enumerate(passages["passage_id"].to_pylist())]
    Texts.write(tmp_path / "texts", {"passage_id": passages["passage_id"], "text": texts})
    expand(world.passages, tmp_path / "texts", tmp_path / "two", count=2)
    longer = Passages.read(tmp_path / "two")
    assert longer.drop_columns(["text"]).equals(passages.drop_columns(["text"]))
    first = f"{passages['text'][0]}\nplain {passages['passage_id'][0]} unheard zebra0"
    assert longer["text"][0].as_py() == first
    Queries.write(tmp_path / "queries", {"query_id": ["q"], "text": ["zebra7"], "split": ["test"]})
    bm25(tmp_path / "two", tmp_path / "queries", tmp_path / "run")
    assert Run.read(tmp_path / "run")["passage_id"].to_pylist() == [passages["passage_id"][7].as_py()]


def test_other_passages_are_refused(world: World, tmp_path: Path) -> None:
    names = Passages.read(world.passages)["passage_id"].to_pylist()
    for some in (names[:-1], [*names[:-1], "x"], [*names, "x"]):
        Texts.write(tmp_path / "texts", {"passage_id": some, "text": ["t"] * len(some)})
        with pytest.raises(Refusal, match=r"texts: its rows from 0 on are not the passages of "):
            expand(world.passages, tmp_path / "texts", tmp_path / "out")
        assert not (tmp_path / "out").exists()
