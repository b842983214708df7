"""The chapter search: passages on the terminal, answers starred."""

import re
from pathlib import Path

import pytest

from stages.artifacts.refusal import Refusal
from stages.artifacts.tables import Queries
from stages.search import search, serve
from tests.conftest import World


def test_ranked_passages_with_scores(world: World, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    row = Queries.read(world.queries).to_pylist()[2]
    tables = world.tokens, world.passages, world.queries, world.qrels
    folders = tmp_path / "index", tmp_path / "none.lock"
    search(row["text"], "bm25", 5, world.backbone, tmp_path / "none", *tables, *folders, longest=64, precision="fp32")
    out, said = capsys.readouterr()
    lines = [line for line in out.splitlines() if not line.startswith("     ")]
    assert [int(line.split()[0]) for line in lines] == list(range(1, len(lines) + 1))
    scores = [float(line.split()[1]) for line in lines]
    assert scores == sorted(scores, reverse=True)
    assert [line.split()[2] for line in lines if line.endswith(" *")] == [row["query_id"].removeprefix("q-")]
    assert re.search(r"of 60 passages in [\d.]+ s after [\d.]+ s of loading", said)


def test_a_missing_model_is_said_before_anything_is_loaded(world: World, tmp_path: Path) -> None:
    for command in (lambda: search("x", model=tmp_path / "nothing"), lambda: serve(model=tmp_path / "nothing")):
        with pytest.raises(Refusal, match=r"nothing: no such folder; `make` trains a retriever"):
            command()
