"""The mean of models, parameter by parameter; models that have no mean."""

from pathlib import Path
from typing import Any

import pytest
import torch

from stages.artifacts.checkpoints import load_encoder, save_encoder
from stages.artifacts.refusal import Refusal
from stages.artifacts.tensors import load_tensors
from stages.merging import merge
from stages.ranking.towers import QUERY, Shape, load_towers, save_towers, stored_towers
from tests.conftest import World


def moved(world: World, folder: Path, seed: int, shape: Shape | None = None) -> Path:
    """The backbone with noise on every weight, as if fine-tuned."""
    model = load_towers(world.backbone, shape or Shape())
    torch.manual_seed(seed)
    with torch.no_grad():
        for part in model.parameters():
            part.add_(torch.randn_like(part) * 0.1)
    save_towers(model, world.backbone, folder)
    return folder


def test_every_parameter_is_the_weighted_mean(world: World, tmp_path: Path) -> None:
    models = [world.backbone, moved(world, tmp_path / "a", 1), moved(world, tmp_path / "b", 2)]
    merge(models, tmp_path / "mean")
    merge(models, tmp_path / "weighted", [0.2, 0.5, 0.3])
    parts = [load_tensors(model / "model.safetensors") for model in models]
    for name, shares in (("mean", [1 / 3] * 3), ("weighted", [0.2, 0.5, 0.3])):
        found = load_tensors(tmp_path / name / "model.safetensors")
        assert found.keys() == parts[1].keys()
        for key, value in found.items():
            expected = sum(share * part[key].double() for share, part in zip(shares, parts, strict=True))
            torch.testing.assert_close(value.double(), expected, rtol=1e-6, atol=1e-7)
    assert not torch.equal(found["embeddings.word_embeddings.weight"], parts[1]["embeddings.word_embeddings.weight"])


def test_a_model_alone_stays_itself(world: World, tmp_path: Path) -> None:
    model = moved(world, tmp_path / "a", 1, Shape(untied=True, head="linear-norm", width=8))
    merge([model], tmp_path / "same")
    for file in ("model.safetensors", f"{QUERY}/model.safetensors", "1_Pooling/config.json", "tokenizer.json"):
        assert (tmp_path / "same" / file).read_bytes() == (model / file).read_bytes()
    both = zip(stored_towers(model).parameters(), stored_towers(tmp_path / "same").parameters(), strict=True)
    assert all(torch.equal(one, other) for one, other in both)


def test_models_that_have_no_mean_are_refused(world: World, tmp_path: Path) -> None:
    from stages.backbone import backbone

    small: dict[str, Any] = {"layers": 2, "width": 16, "heads": 2, "vocabulary": 200}
    backbone("scratch", tmp_path / "small", world.passages, **small)
    backbone("scratch", tmp_path / "other", world.passages, **small | {"vocabulary": 150})
    pooled = load_encoder(world.backbone)
    pooled.pooling = "mean" if pooled.pooling == "cls" else "cls"
    save_encoder(pooled, world.backbone, tmp_path / "pooled")
    apart = moved(world, tmp_path / "apart", 1, Shape(untied=True))
    for models, weights, line in (
        ([world.backbone, tmp_path / "small"], None, r"small: passage.transformer.embeddings.word_embeddings.weight"),
        ([world.backbone, tmp_path / "other"], None, r"other/tokenizer.json: is not that of .*backbone$"),
        ([world.backbone, tmp_path / "pooled"], None, r"pooled: pooling: (mean, but cls|cls, but mean) in"),
        ([world.backbone, apart], None, r"apart: is not made of the same parts as"),
        ([world.backbone], [0.5], r"--weights: 0.5: should be 1 that add up to 1$"),
        ([world.backbone], [0.5, 0.5], r"--weights: 0.5, 0.5: should be 1 that add up to 1$"),
    ):
        with pytest.raises(Refusal, match=line):
            merge(models, tmp_path / "out", weights)
    assert not (tmp_path / "out").exists()
