"""The pre-training chapter: resumes after kill -9 with the same bytes, passes through, and refuses."""

import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from stages.artifacts.checkpoints import load_encoder, load_heads
from stages.artifacts.documents import read_json
from stages.artifacts.files import remove
from stages.artifacts.refusal import Refusal
from stages.artifacts.scratch import content_hash
from stages.backbone import backbone
from stages.bottleneck.autoencoder import Autoencoder
from stages.bottleneck.generator import prepared
from stages.pretraining import pretrain
from stages.training.loop import Plan
from tests.bottleneck.build import ALONE, RECIPES, batches, named
from tests.conftest import World


def run(world: World, out: Path, recipe: str = "master", **extra: object) -> dict:  # type: ignore[type-arg]
    options: dict[str, object] = {
        "keywords": world.keywords,
        "doc2query": world.tokens,
        "continuations": world.tokens,
        "steps": 12,
        "batch": 16,
        "longest": 32,
        "precision": "fp32",
    }
    inputs = (RECIPES / f"{recipe}.yaml", world.passages, world.tokens, world.backbone)
    pretrain(*inputs, out / "encoder", out / "m.json", **(options | extra))  # type: ignore[arg-type]
    return read_json(out / "m.json")  # type: ignore[no-any-return]


def test_the_same_seed_gives_the_same_bytes_and_another_seed_others(world: World, tmp_path: Path) -> None:
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        run(world, tmp_path / name, seed=seed)
    first, again, other = (content_hash(tmp_path / name / "encoder") for name in "abc")
    assert first == again != other


def test_the_probe_and_the_metrics(world: World, tmp_path: Path) -> None:
    told = run(world, tmp_path, probe=6, queries=world.queries, qrels=world.qrels, pooling="mean")
    assert 0 < told["last"]["probe"]["RR@10"] <= 1
    assert -1 <= told["last"]["probe"]["cosine"] <= 1
    assert told["last"]["keywords"]["loss"] > 0
    assert told["speed"]["tokens_per_second"] > 0
    assert told["precision"] == "fp32"
    assert read_json(tmp_path / "encoder" / "1_Pooling" / "config.json")["pooling_mode_mean_tokens"]


def test_a_generator_is_trained_first_and_not_saved(
    world: World, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    recipe = tmp_path / "r.yaml"
    recipe.write_text((RECIPES / "simlm.yaml").read_text().replace("{train: frozen}", "{steps: 15, layers: 1}"))
    for name in "ab":
        pretrain(
            recipe,
            world.passages,
            world.tokens,
            world.backbone,
            tmp_path / name,
            tmp_path / f"{name}.json",
            steps=3,
            batch=16,
            longest=32,
            precision="fp32",
        )
        assert "generator: 15/15 steps" in capfd.readouterr().err
    assert content_hash(tmp_path / "a") == content_hash(tmp_path / "b")
    assert not [name for name in load_heads(tmp_path / "a") if name.startswith("generator")]
    assert not any((tmp_path / "scratch").iterdir())


def test_a_trained_generator_is_not_trained_again_when_its_run_goes_on(world: World, tmp_path: Path) -> None:
    recipe = named("simlm")
    recipe = replace(recipe, generator=replace(recipe.generator, steps=15))  # type: ignore[type-var]
    encoder, plan = load_encoder(world.backbone), Plan(steps=3, learning_rate=1e-3, precision="fp32")
    counts = torch.from_numpy(batches(world, recipe).collate.corpus.counts(encoder.config.vocab_size))
    first = prepared(recipe, encoder, counts, batches(world, recipe), plan, ALONE, tmp_path)
    remove(tmp_path / "generator")
    again = prepared(recipe, encoder, counts, batches(world, recipe), plan, ALONE, tmp_path)
    untrained = replace(recipe, generator=replace(recipe.generator, steps=0))  # type: ignore[type-var]
    fresh = prepared(untrained, encoder, counts, batches(world, recipe), plan, ALONE, tmp_path / "elsewhere")
    assert first
    assert again
    assert fresh
    assert not (tmp_path / "generator").exists()
    pairs = zip(first.state_dict().items(), again.state_dict().values(), strict=True)
    assert all(torch.equal(one, other) for (_, one), other in pairs)
    assert not torch.equal(first.head.bias, fresh.head.bias)  # type: ignore[arg-type]


def test_a_second_corpus_goes_on_with_encoder_and_heads(world: World, tmp_path: Path) -> None:
    run(world, tmp_path / "general")
    backbone(str(tmp_path / "general" / "encoder"), tmp_path / "start")
    assert content_hash(tmp_path / "start" / "heads.safetensors") == content_hash(
        tmp_path / "general" / "encoder" / "heads.safetensors"
    )
    recipe = named("master")
    net = Autoencoder(recipe, load_encoder(tmp_path / "start"), load_heads(tmp_path / "start"))
    assert not net.new  # nothing of the second step is random


def test_an_empty_recipe_passes_the_backbone_through(world: World, tmp_path: Path) -> None:
    run(world, tmp_path, "none", pooling="mean", curves=tmp_path / "curves")
    assert (tmp_path / "curves" / "metrics.json").is_file()  # an output of its stage, even of nothing
    weights = "model.safetensors"
    assert (tmp_path / "encoder" / weights).read_bytes() == (world.backbone / weights).read_bytes()
    assert read_json(tmp_path / "encoder" / "1_Pooling" / "config.json")["pooling_mode_mean_tokens"]


def test_a_recipe_without_its_tables_is_refused_before_any_output(world: World, tmp_path: Path) -> None:
    with pytest.raises(Refusal, match="the recipe looks at keywords, and no table of them was given"):
        run(world, tmp_path, keywords=None)
    assert not tmp_path.exists() or not any(path.name != "scratch" for path in tmp_path.iterdir())


def test_tables_of_another_corpus_are_refused(world: World, tmp_path: Path) -> None:
    with pytest.raises(Refusal, match="not a Weights table"):
        run(world, tmp_path, keywords=world.tokens)


PROGRAM = """
import sys
from pathlib import Path
from stages.pretraining import pretrain
recipe, world, out = map(Path, sys.argv[1:4])
tokens = world / "tokens.parquet"
pretrain(recipe, world / "passages.parquet", tokens, world / "backbone", out / "encoder", out / "m.json",
         keywords=world / "keywords.parquet", doc2query=tokens, continuations=tokens,
         steps=80, batch=16, longest=32, precision="fp32", checkpoint=0.0)
"""


def test_killed_and_run_again_it_ends_with_the_same_bytes(world: World, tmp_path: Path) -> None:
    def start(out: str) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-c", PROGRAM, str(RECIPES / "master.yaml"), str(world.folder), str(tmp_path / out)]
        home = os.environ | {"ISTHMUS_SCRATCH": str(tmp_path / f"{out}-scratch")}
        return subprocess.Popen(command, env=home, stderr=subprocess.PIPE)

    whole = start("whole")
    whole.communicate()
    assert whole.returncode == 0
    killed, folder = start("killed"), tmp_path / "killed-scratch"
    while len(list(folder.glob("*/step-*/complete"))) < 1 and killed.poll() is None:
        time.sleep(0.02)
    killed.send_signal(signal.SIGKILL)
    killed.communicate()
    assert killed.returncode == -signal.SIGKILL, "it had ended before it could be killed"
    assert not (tmp_path / "killed" / "encoder").exists()
    again = start("killed")
    _, said = again.communicate()
    assert again.returncode == 0
    assert b"resuming" in said
    assert content_hash(tmp_path / "whole" / "encoder") == content_hash(tmp_path / "killed" / "encoder")
    assert not any(folder.iterdir())
