"""Fine-tuning on a task: learned by a tiny model, the same bytes again, cuts by the longer text first."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from stages.artifacts.checkpoints import load_encoder, load_vocabulary
from stages.artifacts.ragged import Ragged
from stages.artifacts.refusal import Refusal
from stages.glue import glue
from stages.training.processes import Processes
from stages.understanding.classifier import Batches, Classifier, Texts
from tests.conftest import World, words

RECIPE = {"epochs": 12, "batch": 16, "learning_rate": 3e-3, "dropout": 0.0, "longest": 24, "precision": "fp32"}
ALONE = Processes(0, 1, torch.device("cpu"))


def examples(path: Path, count: int, seed: int) -> Path:
    """Sentences that are fine where they begin with one word and not where they begin with another."""
    random = np.random.default_rng(seed)
    rows = [(label, " ".join([("ba", "zu")[label], *words(random, 6)])) for label in random.integers(0, 2, count)]
    path.write_text("".join(f"x\t{label}\t\t{text}\n" for label, text in rows))
    return path


def test_a_task_is_learned_and_again_with_the_same_bytes(world: World, tmp_path: Path) -> None:
    files = [
        examples(tmp_path / f"{name}.tsv", count, i)
        for i, (name, count) in enumerate((("t", 160), ("d", 40), ("e", 30)))
    ]
    for name in ("one.json", "two.json"):
        glue("cola", world.backbone, files[0], files[1:], tmp_path / name, **RECIPE)  # type: ignore[arg-type]
    report = json.loads((tmp_path / "one.json").read_text())
    assert report["dev"]["d"]["matthews"] > 0.8
    assert set(report["dev"]) == {"d", "e", "together"}
    assert report["dev"]["together"]["examples"] == 70
    assert (tmp_path / "one.json").read_bytes() == (tmp_path / "two.json").read_bytes()
    with pytest.raises(Refusal, match=r"two have one name$"):
        glue("cola", world.backbone, files[0], [files[1], files[1]], tmp_path / "x")
    with pytest.raises(Refusal, match=r"more than the 40 training examples$"):
        glue("cola", world.backbone, files[1], files[1:], tmp_path / "x", batch=41)


def test_the_longer_of_a_pair_is_cut_first(world: World) -> None:
    random = np.random.default_rng(0)
    lengths = random.integers(1, 15, (2, 60))
    columns = [Ragged.of([np.full(n, 7 + i) for n in row], np.int32) for i, row in enumerate(lengths)]
    texts = Texts(columns, np.zeros(60), load_vocabulary(world.backbone), 15)
    for i, (kept, padded) in enumerate(
        zip(zip(*texts.cuts, strict=True), texts.padded(np.arange(60)).ids, strict=True)
    ):
        first, second = (int(n) for n in lengths[:, i])
        while first + second > 12:
            first, second = (first - 1, second) if first > second else (first, second - 1)
        assert kept == (first, second)
        assert (int((padded == 7).sum()), int((padded == 8).sum())) == kept


def test_the_loss_is_the_mean_over_the_whole_batch(world: World) -> None:
    random = np.random.default_rng(3)
    columns = [Ragged.of([random.integers(10, 100, n) for n in random.integers(2, 20, 24)], np.int32)]
    for classes, labels in ((2, random.integers(0, 2, 24)), (0, random.random(24, dtype=np.float32))):
        texts = Texts(columns, labels, load_vocabulary(world.backbone), 24)
        model = Classifier(load_encoder(world.backbone), classes, 0.0, 1).eval()
        losses = []
        for budget in (60, 10_000):
            parts = Batches(texts, 16, 0, budget, ALONE)(0)
            totals = {"examples": sum(part.counts["examples"] for part in parts)}
            assert totals["examples"] == 16
            losses.append(sum(model(part, totals)[0].item() for part in parts))
        assert losses[0] == pytest.approx(losses[1], abs=1e-5)
        logits = torch.cat([model.logits(part.texts) for part in parts])
        right = torch.cat([part.labels for part in parts])
        if classes:
            assert losses[1] == pytest.approx(torch.nn.functional.cross_entropy(logits, right).item(), abs=1e-5)
        else:
            assert losses[1] == pytest.approx(((logits[:, 0] - right) ** 2).mean().item(), abs=1e-5)
