"""The adapt chapter: queries learn what another ranking knows; passages, and so every index, stay as they were."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from stages.adaptation import adapt
from stages.artifacts.documents import read_json
from stages.artifacts.refusal import Refusal
from stages.artifacts.scratch import content_hash
from stages.artifacts.tables import Qrels, Queries, Run
from stages.bm25 import bm25
from stages.mining import mine
from stages.pseudo import pseudo
from stages.ranking.runs import by_query, ordered
from stages.training import checkpoint

OPTIONS: dict[str, Any] = {
    "longest": 40,
    "batch": 16,
    "best": 8,
    "drawn": 24,
    "learning_rate": 5e-3,
    "precision": "fp32",
    "temperature": 0.01,
}


@pytest.fixture(scope="module")
def asked(world: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with pseudo queries, where they are from, and BM25's ranking of them."""
    folder = tmp_path_factory.mktemp("asked")
    pseudo(world.passages, folder / "queries", folder / "qrels")
    bm25(world.passages, folder / "queries", folder / "teacher", depth=60)
    return folder


def adapted(world: Any, asked: Path, out: Path, model: Path | None = None, **options: Any) -> dict[str, Any]:
    tables = world.tokens, asked / "queries", asked / "qrels", world.passages
    metrics = out.with_suffix(".json")
    adapt(model or world.backbone, asked / "teacher", *tables, out, metrics, **{**OPTIONS, **options})
    return read_json(metrics)  # type: ignore[no-any-return]


def test_queries_come_nearer_to_the_teacher_and_passages_stay(
    world: Any, asked: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    little, much = (adapted(world, asked, tmp_path / str(steps), steps=steps) for steps in (1, 150))
    assert much["last"]["divergence"] < 0.7 * little["last"]["divergence"]
    assert much["precision"] == "fp32"
    model = tmp_path / "150"
    for name in ("model.safetensors", "tokenizer.json"):
        assert (model / name).read_bytes() == (world.backbone / name).read_bytes()
    assert (model / "query" / "model.safetensors").read_bytes() != (world.backbone / "model.safetensors").read_bytes()
    agreed = {}
    for name, folder in (("before", world.backbone), ("after", model)):
        capsys.readouterr()
        mine(folder, world.tokens, asked / "queries", tmp_path / name, depth=12, longest=40, precision="fp32")
        assert "encode passages" not in capsys.readouterr().err
        shared = zip(by_query(tmp_path / name), by_query(asked / "teacher"), strict=True)
        agreed[name] = np.mean([len({*found[:5]} & {*wanted[:5]}) for (_, found, _), (_, wanted, _) in shared])
    assert agreed["after"] > 1.3 * agreed["before"]


def test_it_goes_on_from_its_own_query_encoder(world: Any, asked: Path, tmp_path: Path) -> None:
    adapted(world, asked, tmp_path / "one", steps=20)
    told = adapted(world, asked, tmp_path / "two", tmp_path / "one", steps=1)
    fresh = adapted(world, asked, tmp_path / "fresh", steps=1)
    assert told["last"]["divergence"] < fresh["last"]["divergence"]


def test_the_passage_that_a_query_is_from_teaches_nothing(world: Any, asked: Path, tmp_path: Path) -> None:
    adapted(world, asked, tmp_path / "plain", steps=12)
    own = {(row["query_id"], row["passage_id"]) for row in Qrels.read(asked / "qrels").to_pylist()}
    rows = Run.read(asked / "teacher").to_pylist()
    lowered = [(row["score"] - (99 if (row["query_id"], row["passage_id"]) in own else 0)) for row in rows]
    ids, passages = ([row[name] for row in rows] for name in ("query_id", "passage_id"))
    other = tmp_path / "other"
    other.mkdir()
    Run.write(other / "teacher", ordered(ids, passages, lowered))
    for name in ("queries", "qrels"):
        (other / name).write_bytes((asked / name).read_bytes())
    adapted(world, other, tmp_path / "lowered", steps=12)
    assert content_hash(tmp_path / "plain") == content_hash(tmp_path / "lowered")


def test_stopped_and_run_again_is_as_if_never_stopped(
    world: Any, asked: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    adapted(world, asked, tmp_path / "whole", steps=25, checkpoint=0.0)
    save = checkpoint.save

    def stopped(*arguments: Any) -> None:
        save(*arguments)
        raise KeyboardInterrupt

    monkeypatch.setattr(checkpoint, "save", stopped)
    with pytest.raises(KeyboardInterrupt):
        adapted(world, asked, tmp_path / "again", steps=25, checkpoint=0.0)
    assert not (tmp_path / "again").exists()
    monkeypatch.setattr(checkpoint, "save", save)
    adapted(world, asked, tmp_path / "again", steps=25, checkpoint=0.0)
    assert content_hash(tmp_path / "whole") == content_hash(tmp_path / "again")
    assert not list((tmp_path / "scratch").glob("adapt-*"))


def test_bad_input_is_refused_before_any_work(world: Any, asked: Path, tmp_path: Path) -> None:
    rows = Qrels.read(asked / "qrels").to_pylist()
    alone = tmp_path / "alone"
    alone.mkdir()
    (alone / "queries").write_bytes((asked / "queries").read_bytes())
    (alone / "qrels").write_bytes((asked / "qrels").read_bytes())
    ids, passages = ([row[name] for row in rows] for name in ("query_id", "passage_id"))
    Run.write(alone / "teacher", ordered(ids, passages, np.ones(len(rows))))
    with pytest.raises(Refusal, match=r"teacher: ranks nothing for a train query of .*queries but the passage"):
        adapted(world, alone, tmp_path / "model")
    Queries.write(alone / "queries", {"query_id": ["q"], "text": ["one"], "split": ["test"]})
    with pytest.raises(Refusal, match=r"queries: no query of split train$"):
        adapted(world, alone, tmp_path / "model")
    assert not (tmp_path / "model").exists()
