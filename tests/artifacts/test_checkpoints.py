"""Model folders: what is saved loads everywhere, and gives the same vectors."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from sentence_transformers import SentenceTransformer
from transformers import AutoModel

from stages.artifacts.checkpoints import load_encoder, load_heads, load_tokenizer, load_vocabulary, save_encoder
from stages.artifacts.refusal import Refusal
from tests.conftest import World

TEXTS = ["bake limo", "nura seti vozu bake", "zu"]


def vectors(folder: Path) -> np.ndarray:
    encoder, vocabulary = load_encoder(folder).eval(), load_vocabulary(folder)
    rows = []
    for encoding in load_tokenizer(folder).encode_batch(TEXTS, add_special_tokens=False):
        ids = torch.tensor([[vocabulary.cls, *encoding.ids, vocabulary.sep]])
        with torch.no_grad():
            rows.append(encoder(ids, torch.tensor([ids.shape[1]]))[0])
    return torch.stack(rows).numpy()


@pytest.mark.parametrize("pooling", ["cls", "mean"])
@pytest.mark.parametrize("normalise", [True, False])
def test_sentence_transformers_gives_the_same_vectors(
    world: World, tmp_path: Path, pooling: str, normalise: bool
) -> None:
    encoder = load_encoder(world.backbone)
    encoder.pooling, encoder.normalise = pooling, normalise  # type: ignore[assignment]
    save_encoder(encoder, world.backbone, tmp_path / "model")
    theirs = SentenceTransformer(str(tmp_path / "model"), device="cpu").encode(TEXTS, show_progress_bar=False)
    np.testing.assert_allclose(vectors(tmp_path / "model"), theirs, atol=1e-5)


def test_padding_never_changes_a_vector(world: World) -> None:
    encoder = load_encoder(world.backbone).eval()
    ids = torch.randint(5, 100, (1, 9))
    wide = torch.nn.functional.pad(ids, (0, 7))
    for pooling in ("cls", "mean"):
        encoder.pooling = pooling  # type: ignore[assignment]
        with torch.no_grad():
            alone, padded = encoder(ids, torch.tensor([9])), encoder(wide, torch.tensor([9]))
        torch.testing.assert_close(alone, padded)


def test_auto_model_loads_it_with_nothing_missing_or_unexpected(world: World, tmp_path: Path) -> None:
    save_encoder(load_encoder(world.backbone), world.backbone, tmp_path / "model", {"x": torch.ones(3)})
    _, info = AutoModel.from_pretrained(tmp_path / "model", output_loading_info=True)
    assert not info["missing_keys"]
    assert not info["unexpected_keys"]
    assert load_heads(tmp_path / "model")["x"].tolist() == [1, 1, 1]
    assert load_heads(world.backbone) == {}


def test_the_same_model_is_the_same_bytes(world: World, tmp_path: Path) -> None:
    for name in ("a", "b"):
        save_encoder(load_encoder(world.backbone), world.backbone, tmp_path / name)
    files = sorted(path.relative_to(tmp_path / "a") for path in (tmp_path / "a").rglob("*") if path.is_file())
    assert [(tmp_path / "a" / file).read_bytes() for file in files] == [
        (tmp_path / "b" / file).read_bytes() for file in files
    ]
    assert not any(file.suffix in (".bin", ".pkl", ".pt") for file in files)


def test_special_pieces_cannot_be_written_in_text(world: World) -> None:
    vocabulary = load_vocabulary(world.backbone)
    ids = load_tokenizer(world.backbone).encode("bake [SEP] [MASK] limo", add_special_tokens=False).ids
    assert vocabulary.sep not in ids
    assert vocabulary.mask not in ids


def test_folders_that_are_no_models_are_refused(world: World, tmp_path: Path) -> None:
    with pytest.raises(Refusal, match=r"config.json: no such file"):
        load_encoder(tmp_path)
    with pytest.raises(Refusal, match=r"tokenizer.json: no such file"):
        load_tokenizer(tmp_path)
    (tmp_path / "tokenizer.json").write_bytes((world.backbone / "tokenizer.json").read_bytes())
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"cls_token": "[CLS]"}))
    with pytest.raises(Refusal, match="sep_token is missing"):
        load_vocabulary(tmp_path)
    (tmp_path / "heads.safetensors").write_bytes(b"nonsense")
    with pytest.raises(Refusal, match=r"heads.safetensors: not safetensors"):
        load_heads(tmp_path)
