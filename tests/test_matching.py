"""Given candidates in a retriever's order: the scores are those of exact search."""

from pathlib import Path

import pytest

from stages.artifacts.refusal import Refusal
from stages.artifacts.tables import Run
from stages.bm25 import bm25
from stages.matching import match
from stages.mining import mine
from stages.ranking.runs import by_query, ordered
from tests.conftest import World


def test_scores_are_those_of_exact_search(world: World, tmp_path: Path) -> None:
    bm25(world.passages, world.queries, tmp_path / "bm25", depth=20)
    options = {"splits": ["dev", "test"], "precision": "fp32"}
    mine(world.backbone, world.tokens, world.queries, tmp_path / "all", depth=1000, **options)  # type: ignore[arg-type]
    match(world.backbone, tmp_path / "bm25", world.tokens, world.queries, tmp_path / "out", depth=7, **options)  # type: ignore[arg-type]
    candidates = {name: set(found[:7]) for name, found, _ in by_query(tmp_path / "bm25")}
    exact = {name: dict(zip(found, scores.tolist(), strict=True)) for name, found, scores in by_query(tmp_path / "all")}
    count = 0
    for name, found, scores in by_query(tmp_path / "out"):
        assert set(found) == candidates[name]
        assert scores.tolist() == pytest.approx([exact[name][passage] for passage in found], abs=1e-5)
        count += 1
    assert count == len(exact)


def test_refused(world: World, tmp_path: Path) -> None:
    Run.write(tmp_path / "run", ordered(["nobody"], ["p0-0"], [1]))
    with pytest.raises(Refusal, match=r"run: nothing for the queries of "):
        match(world.backbone, tmp_path / "run", world.tokens, world.queries, tmp_path / "out")
    Run.write(tmp_path / "run", ordered(["q-p0-0"], ["elsewhere"], [1]))
    with pytest.raises(Refusal, match=r"run: passage_id elsewhere is not among the tokens'$"):
        match(world.backbone, tmp_path / "run", world.tokens, world.queries, tmp_path / "out")
