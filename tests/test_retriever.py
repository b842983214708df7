"""The retriever chapter: it learns, it resumes, and others can load it."""

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sentence_transformers import SentenceTransformer

from stages.artifacts.checkpoints import load_encoder, load_heads, save_encoder
from stages.artifacts.documents import read_json
from stages.artifacts.refusal import Refusal
from stages.artifacts.scratch import content_hash
from stages.artifacts.tables import Answers, Passages, Qrels, Queries, Run, Tokens
from stages.mining import mine
from stages.ranking.refresh import Refresher
from stages.ranking.runs import ordered
from stages.retriever import retriever
from stages.training import checkpoint
from stages.training.precision import resolved

SMALL = {"batch": 8, "group": 3, "learning_rate": 1e-3, "longest": 40}


@pytest.fixture
def run(world: Any, tmp_path: Path) -> Path:
    """A random run with random scores, positives among them: negatives, and a teacher."""
    queries, names = (
        Queries.read(world.queries)["query_id"].to_pylist(),
        Tokens.read(world.tokens)["passage_id"].to_pylist(),
    )
    rows = [(q, p) for q in queries for p in names]
    scores = np.random.default_rng(2).normal(size=len(rows))
    Run.write(tmp_path / "negatives", ordered([q for q, _ in rows], [p for _, p in rows], scores))
    return tmp_path / "negatives"


def train(world: Any, out: Path, **options: Any) -> dict[str, Any]:
    """Run the chapter; the metrics."""
    metrics = out.with_suffix(".json")
    tables = world.tokens, world.queries, world.qrels, world.passages
    retriever(world.backbone, *tables, out, metrics=metrics, **{**SMALL, **options})
    return read_json(metrics)  # type: ignore[no-any-return]


def test_learns_its_training_pairs_and_tells_what_it_saw(world: Any, tmp_path: Path, run: Path) -> None:
    told = train(world, tmp_path / "model", negatives=[run], epochs=30, probe_every=10, curves=tmp_path / "curves")
    assert told["queries"]["queries"] == 36
    assert told["queries"]["candidates"] == 36 * 60
    assert told["queries"]["removed_positive"] == 36
    assert told["groups"]["passages"] == 3
    assert told["groups"]["negatives"] + told["groups"]["masked"] == 8 * 3 - 1
    assert told["last"]["step"] == 135
    assert 0 <= told["last"]["dev RR@10"] <= 1
    assert told["last"]["first in its group"] > 0.8
    assert told["speed"]["tokens_per_second"] > 0
    assert told["precision"] == resolved("auto")
    assert (tmp_path / "curves").is_dir()
    for name, splits in (("before", world.backbone), ("after", tmp_path / "model")):
        mine(splits, world.tokens, world.queries, tmp_path / name, splits=["train"], depth=1, longest=40)
    truth = {(row["query_id"], row["passage_id"]) for row in Qrels.read(world.qrels).to_pylist()}
    right = {
        name: sum((row["query_id"], row["passage_id"]) in truth for row in Run.read(tmp_path / name).to_pylist())
        for name in ("before", "after")
    }
    assert right["after"] > 2 * right["before"]


def test_sentence_transformers_reads_the_same_vectors(world: Any, tmp_path: Path) -> None:
    train(world, tmp_path / "model", steps=2)
    theirs = SentenceTransformer(str(tmp_path / "model"), device="cpu")
    texts = Queries.read(world.queries).filter([True, *[False] * 59])["text"].to_pylist()
    passages = Passages.read(world.passages)["text"].to_pylist()
    mine(tmp_path / "model", world.tokens, world.queries, tmp_path / "run", depth=60, longest=128, precision="fp32")
    scores = {row["passage_id"]: row["score"] for row in Run.read(tmp_path / "run").slice(0, 60).to_pylist()}
    asked, answers = theirs.encode(texts), theirs.encode(passages)
    np.testing.assert_allclose(np.linalg.norm(answers, axis=1), 1, atol=1e-5)
    names = Passages.read(world.passages)["passage_id"].to_pylist()
    title = Passages.read(world.passages)["title"].to_pylist()
    assert title[0]
    expected = theirs.encode([f"{t} {p}" for t, p in zip(title, passages, strict=True)]) @ asked[0]
    np.testing.assert_allclose([scores[name] for name in names], expected, atol=1e-5)


def test_same_seed_same_bytes_other_seed_other_bytes(world: Any, tmp_path: Path, run: Path) -> None:
    for name, seed in (("one", 4), ("two", 4), ("three", 5)):
        train(world, tmp_path / name, negatives=[run], steps=3, seed=seed)
    one, two, three = (content_hash(tmp_path / name) for name in ("one", "two", "three"))
    assert one == two != three


KILLED = """
import os, signal, sys
from pathlib import Path
from stages.training import checkpoint
save = checkpoint.save
def save_then_die(*arguments):
    save(*arguments)
    os.kill(os.getpid(), signal.SIGKILL)
checkpoint.save = save_then_die
from stages.retriever import retriever
paths = [Path(name) for name in sys.argv[1:]]
retriever(*paths[:6], metrics=paths[6], negatives=[paths[7]], batch=8, group=3, learning_rate=1e-3, longest=40,
          steps=25, dropout=0.1, checkpoint=0.0)
"""


def test_killed_and_run_again_is_as_if_never_killed(world: Any, tmp_path: Path, run: Path) -> None:
    out, metrics = tmp_path / "killed", tmp_path / "killed.json"
    paths = world.backbone, world.tokens, world.queries, world.qrels, world.passages, out, metrics, run
    command = [sys.executable, "-W", "ignore", "-c", KILLED, *map(str, paths)]
    killed = subprocess.run(command, capture_output=True, env={**os.environ, "PYTHONHASHSEED": "1"})
    assert killed.returncode == -signal.SIGKILL, killed.stderr.decode()
    assert not out.exists()
    (state,) = (tmp_path / "scratch").glob("retriever-*")
    assert [path.name for path in state.iterdir()] == ["step-000000010"]
    options = {**SMALL, "steps": 25, "dropout": 0.1, "checkpoint": 0.0}
    tables = world.tokens, world.queries, world.qrels, world.passages
    whole = tmp_path / "whole"
    retriever(world.backbone, *tables, whole, metrics=tmp_path / "w.json", negatives=[run], **options)
    again = subprocess.run(
        [*command[:4], KILLED.replace("checkpoint.save = save_then_die", ""), *command[5:]], capture_output=True
    )
    assert again.returncode == 0, again.stderr.decode()
    assert b"resuming" in again.stderr
    assert content_hash(out) == content_hash(whole)
    assert not state.exists()


def test_a_teacher_is_distilled_with_its_share_of_contrast(world: Any, tmp_path: Path, run: Path) -> None:
    told = train(world, tmp_path / "model", negatives=[run], teacher=run, steps=10, alpha=0.2)
    last = told["last"]
    assert last["loss"] == pytest.approx(last["distillation"] + 0.2 * last["contrastive"], rel=1e-4)
    assert told["queries"]["removed_unscored"] == 0


@pytest.mark.parametrize("denominator", ["eq3", "infonce", "release"])
@pytest.mark.parametrize("similarity", ["cosine", "dot"])
def test_every_objective_trains(world: Any, tmp_path: Path, run: Path, similarity: str, denominator: str) -> None:
    train(
        world, tmp_path / "model", negatives=[run], steps=1, similarity=similarity, denominator=denominator, chunk=100
    )
    ends_normalised = "Normalize" in (tmp_path / "model" / "modules.json").read_text()
    assert ends_normalised == (similarity == "cosine")


@pytest.mark.parametrize("objective", ["triplet", "pairwise", "listwise"])
@pytest.mark.parametrize("distillation", ["cross-entropy", "margin-mse"])
def test_choices_within_groups_and_lessons_train(
    world: Any, tmp_path: Path, run: Path, objective: str, distillation: str
) -> None:
    options = {"negatives": [run], "teacher": run, "steps": 2, "alpha": 0.5, "objective": objective}
    last = train(world, tmp_path / "model", distillation=distillation, **options)["last"]
    assert last["loss"] == pytest.approx(last["distillation"] + 0.5 * last[objective], rel=1e-4)


def test_runs_are_mixed_and_answers_filtered(world: Any, tmp_path: Path, run: Path) -> None:
    names = Queries.read(world.queries)["query_id"]
    Answers.write(tmp_path / "answers", {"query_id": names, "answer": ["ba"] * len(names)})
    told = train(world, tmp_path / "model", negatives=[run, run], answers=tmp_path / "answers", depth=20, steps=1)
    counts = told["queries"]
    assert counts["candidates"] == 2 * 36 * 20
    removed = {name: count for name, count in counts.items() if name.startswith("removed_")}
    assert counts["negatives"] == counts["candidates"] - sum(removed.values())
    proposed = counts["candidates"] - removed["removed_positive"] - removed["removed_same_text"]
    assert 2 * removed["removed_repeated"] == proposed


def test_untied_towers_with_a_head_part_ways(world: Any, tmp_path: Path, run: Path) -> None:
    options = {"negatives": [run], "steps": 2, "towers": "untied", "similarity": "dot"}
    train(world, tmp_path / "one", head="linear-norm", width=16, **options)
    hashes = {content_hash(folder / "model.safetensors") for folder in (tmp_path / "one", tmp_path / "one" / "query")}
    assert len(hashes) == 2
    tables = world.tokens, world.queries, world.qrels, world.passages
    retriever(tmp_path / "one", *tables, tmp_path / "two", metrics=tmp_path / "m", **{**SMALL, **options})
    assert (tmp_path / "two" / "query" / "3_LayerNorm" / "model.safetensors").is_file()
    mine(tmp_path / "two", world.tokens, world.queries, tmp_path / "mined", depth=3)


def test_a_bag_beside_the_vector_is_trained_and_goes_on(world: Any, tmp_path: Path, run: Path) -> None:
    encoder = load_encoder(world.backbone)
    size = encoder.config.vocab_size
    lpu = {"decoders.bag.lpu.weight": torch.randn(size, 32) * 0.1, "decoders.bag.lpu.bias": torch.zeros(size)}
    save_encoder(encoder, world.backbone, tmp_path / "start", lpu)
    tables = world.tokens, world.queries, world.qrels, world.passages
    options: dict[str, Any] = {**SMALL, "negatives": [run], "steps": 2, "similarity": "dot", "bag": 20, "chunk": 300}
    retriever(tmp_path / "start", *tables, tmp_path / "one", metrics=tmp_path / "m", head="linear", width=8, **options)
    retriever(tmp_path / "one", *tables, tmp_path / "two", metrics=tmp_path / "m", **options)
    models = [tmp_path / name for name in ("start", "one", "two")]
    weights = [load_heads(model)["decoders.bag.lpu.weight"] for model in models]
    assert not weights[0].equal(weights[1])
    assert not weights[1].equal(weights[2])
    mine(tmp_path / "two", world.tokens, world.queries, tmp_path / "mined", splits=["dev"], depth=3)
    with pytest.raises(Refusal, match=r"say --bag$"):
        retriever(tmp_path / "one", *tables, tmp_path / "three", metrics=tmp_path / "m")


REFRESHED = {"depth": 5, "group": 5, "steps": 24, "precision": "fp32", "refresh": 1, "checkpoint": 0.0}


def test_a_refresh_mines_with_the_model_as_it_then_is(
    world: Any, tmp_path: Path, run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mined = Refresher.run

    def copied(self: Refresher, number: int) -> Path:
        path = mined(self, number)
        shutil.copytree(path.parent, tmp_path / f"seen-{number}")
        return path

    monkeypatch.setattr(Refresher, "run", copied)
    told = train(world, tmp_path / "model", negatives=[run], **REFRESHED)
    assert told["last"]["step"] == 24
    assert told["queries"]["candidates"] == 36 * 5
    seen = tmp_path / "seen-1"
    mine(seen / "model", world.tokens, world.queries, tmp_path / "again", ["train"], 5, 40, 32, "fp32")
    assert (tmp_path / "again").read_bytes() == (seen / "run.parquet").read_bytes()
    train(world, tmp_path / "other", negatives=[run], **{**REFRESHED, "refresh": 0})
    assert content_hash(tmp_path / "model") != content_hash(tmp_path / "other")


@pytest.mark.parametrize("moment", ["before mining", "after mining"])
def test_a_refreshed_run_that_is_stopped_goes_on(
    world: Any, tmp_path: Path, run: Path, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    train(world, tmp_path / "whole", negatives=[run], **REFRESHED)
    save, steps = checkpoint.save, {"before mining": 12, "after mining": 20}

    def stopped(folder: Path, step: int, *rest: Any) -> None:
        save(folder, step, *rest)
        if step == steps[moment]:
            raise KeyboardInterrupt

    monkeypatch.setattr(checkpoint, "save", stopped)
    with pytest.raises(KeyboardInterrupt):
        train(world, tmp_path / "stopped", negatives=[run], **REFRESHED)
    monkeypatch.setattr(checkpoint, "save", save)
    train(world, tmp_path / "stopped", negatives=[run], **REFRESHED)
    assert content_hash(tmp_path / "stopped") == content_hash(tmp_path / "whole")


@pytest.mark.parametrize(("batch", "group"), [(12, 2), (6, 4), (2, 12)])
def test_negatives_scale_at_a_fixed_number_of_passages_and_queries_by_share(
    world: Any, tmp_path: Path, run: Path, batch: int, group: int
) -> None:
    told = train(world, tmp_path / "model", negatives=[run], batch=batch, group=group, steps=1, fraction=0.5)
    assert told["queries"]["queries"] == 18
    assert told["queries"]["queries_left_out"] == 18
    assert told["groups"]["negatives"] + told["groups"]["masked"] == 24 - 1


def test_bad_input_is_refused_before_any_work(world: Any, tmp_path: Path, run: Path) -> None:
    for message, options in {
        "--teacher needs --negatives": {"teacher": run},
        r"--width 8 needs --head": {"width": 8},
        "--probe-every: a probe looks at one dense encoder": {"towers": "untied", "probe_every": 1},
        "--refresh needs --negatives": {"refresh": 1},
        "--refresh 1: there are only 1 steps": {"refresh": 1, "negatives": [run]},
        "--refresh: a teacher has not scored": {"refresh": 1, "negatives": [run], "teacher": run},
        "--bag needs --similarity dot": {"bag": 4},
        "--objective triplet needs --negatives": {"objective": "triplet"},
        r"of 36 training queries have fewer than 99 negatives": {"negatives": [run], "group": 100, "fill": False},
        r"the corpus has only \d+ passages to fill a group with": {"negatives": [run], "group": 100},
        r"nowhere: no such file$": {"negatives": [tmp_path / "nowhere"]},
    }.items():
        with pytest.raises(Refusal, match=message):
            train(world, tmp_path / "model", steps=1, **options)
    assert not (tmp_path / "model").exists()
    assert not (tmp_path / "scratch").exists() or not any((tmp_path / "scratch").iterdir())


def test_imports_only_what_training_needs() -> None:
    code = "import sys, stages.retriever; print([m for m in sys.modules if m.split('.')[0] in sys.argv[1:]])"
    absent = ["polars", "dvc", "dvclive", "faiss", "pyserini", "scipy", "ir_measures", "sentence_transformers"]
    found = subprocess.run([sys.executable, "-c", code, *absent], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"
