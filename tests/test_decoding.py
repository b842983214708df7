"""The chapter decoders: each column against slow decoders of one text at a time."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from stages.artifacts.checkpoints import load_vocabulary, save_encoder
from stages.artifacts.ragged import read_ragged
from stages.artifacts.refusal import Refusal
from stages.artifacts.tables import Passages, Tokens
from stages.bottleneck.autoencoder import Autoencoder
from stages.decoding import decoders
from tests.bottleneck import slow
from tests.bottleneck.build import model, written
from tests.conftest import World

LONGEST = 16
RECIPE = """
encoder: {passage: {mask: none}, other: {mask: {random: 0.3}, fill: generator, predict: all}}
generator: {train: frozen}
decoders:
  causal: {network: causal, fill: keep, predict: all, options: {span: 3}}
  next: {text: next, layers: 1, bottleneck: linear, mask: none}
  enhanced: {network: enhanced, layers: 1, mask: {random: 0.5}, fill: keep, predict: all}
  other: {reads: other, mask: {random: 0.5}}
  bag: {network: bag}
"""


@pytest.fixture
def net(world: World, tmp_path: Path) -> Autoencoder:
    """Untrained, and saved as pre-training saves it; biases and norms are none that make things easy."""
    made = model(world, written(tmp_path, RECIPE)).eval()
    torch.manual_seed(4)
    with torch.no_grad():
        for value in made.heads().values():
            value.add_(torch.randn_like(value) * 0.1)
    save_encoder(made.encoder, world.backbone, tmp_path / "model", made.heads())
    return made


def told(world: World, folder: Path, **options: Any) -> list[dict[str, float]]:
    """The chapter's rows."""
    common = {"longest": LONGEST, "sample": 10_000, "precision": "fp32"} | options
    decoders(folder / "recipe.yaml", world.passages, world.tokens, folder / "model", folder / "d.json", **common)
    return json.loads((folder / "d.json").read_text())  # type: ignore[no-any-return]


def cosines(states: list[Tensor], vector: Tensor) -> np.ndarray:
    return np.array([float(state @ vector / state.norm() / vector.norm()) for state in states])


def test_similarity_of_decoder_states_to_the_vector(world: World, net: Autoencoder, tmp_path: Path) -> None:
    rows = told(world, tmp_path)
    assert [row["position"] for row in rows] == list(range(LONGEST))
    pieces, vocabulary = read_ragged(Tokens, world.tokens, "pieces"), load_vocabulary(world.backbone)
    documents = Passages.read(world.passages)["document_id"].to_pylist()

    def framed(row: int) -> list[int]:
        text = pieces.values[pieces.offsets[row] : pieces.offsets[row + 1]][: LONGEST - 2].tolist()
        return [vocabulary.cls, *text, vocabulary.sep]

    causal, following = [], np.full((len(pieces), LONGEST), np.nan)
    decoder: Any = net.decoders["next"]
    with torch.no_grad():
        for row in np.flatnonzero(pieces.lengths >= LONGEST - 2).tolist():
            ids = torch.tensor([framed(row)])
            states = net.encoder.states(ids, torch.tensor([LONGEST]))
            vector = net.encoder.pool(states, torch.tensor([LONGEST]))[0].double()
            causal.append(cosines(slow.causal(net, net.decoders["causal"], vector, framed(row)[:-1]), vector))
            if row + 1 < len(pieces) and documents[row + 1] == documents[row]:
                inputs = [slow.embedded(net, piece, i) for i, piece in enumerate(framed(row + 1))]
                inputs[0] = slow.linear(decoder.bottleneck, vector)
                found = cosines(slow.layer(decoder.layers[0], inputs), vector)
                following[row, : len(found)] = found
    assert len(causal) > 10
    np.testing.assert_allclose([row["causal"] for row in rows[:-1]], np.mean(causal, axis=0), atol=1e-4)
    assert "causal" not in rows[-1]  # [SEP] is not read
    np.testing.assert_allclose([row["next"] for row in rows], np.nanmean(following, axis=0), atol=1e-4)
    assert all(set(row) - {"causal"} == {"position", "next", "enhanced", "other"} for row in rows)
    assert all(abs(row[name]) <= 1 + 1e-6 for row in rows for name in ("enhanced", "other"))


def test_the_same_bytes_for_the_same_seed(world: World, net: Autoencoder, tmp_path: Path) -> None:
    options = {"sample": 8, "precision": "bf16", "seed": 3}
    assert told(world, tmp_path, **options) == told(world, tmp_path, **options)
    assert told(world, tmp_path, **options) != told(world, tmp_path, **options | {"seed": 4})


def test_what_cannot_be_shown_is_refused(world: World, net: Autoencoder, tmp_path: Path) -> None:
    with pytest.raises(Refusal, match=r"tokens\.parquet: no passage of 500 pieces$"):
        told(world, tmp_path, longest=500)
    (tmp_path / "recipe.yaml").write_text(RECIPE.replace("layers: 1, bottleneck", "layers: 2, bottleneck"))
    missing = r"model/heads\.safetensors: decoders\.next\.layers\.1\.\S+ is missing: the model was not pre-trained with"
    with pytest.raises(Refusal, match=missing):
        told(world, tmp_path)
    (tmp_path / "recipe.yaml").write_text("encoder: {passage: {}}\ndecoders: {bag: {network: bag}}\n")
    with pytest.raises(Refusal, match=r"recipe\.yaml: no decoder has states by position: none is bidirectional, "):
        told(world, tmp_path)
