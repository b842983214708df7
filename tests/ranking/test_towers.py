"""Towers and heads: trained apart, kept apart, and read elsewhere as they are read here."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sentence_transformers import SentenceTransformer

from stages.artifacts.checkpoints import TextEncoder, load_encoder, load_vocabulary, save_encoder
from stages.artifacts.heads import load_head, new_head
from stages.artifacts.ragged import read_ragged
from stages.artifacts.refusal import Refusal
from stages.artifacts.tables import Passages, Queries, Run, Tokens
from stages.embedding.pieces import single
from stages.embedding.vectors import encode_rows
from stages.mining import mine
from stages.ranking.encoding import for_inference
from stages.ranking.towers import Shape, Towers, load_towers, query_folder, save_towers
from stages.training.processes import join

UNTIED = Shape(untied=True, normalise=False)


@pytest.mark.parametrize("norm", [False, True])
def test_a_head_is_read_elsewhere_as_here(world: Any, tmp_path: Path, norm: bool) -> None:
    encoder = load_encoder(world.backbone)
    encoder.head, encoder.normalise = new_head(32, 20, norm, seed=3), not norm
    torch.nn.init.normal_(encoder.head[0].linear.bias)
    save_encoder(encoder, world.backbone, tmp_path / "model")
    theirs = SentenceTransformer(str(tmp_path / "model"), device="cpu")
    table = Passages.read(world.passages).slice(0, 9)
    expected = theirs.encode([f"{row['title']} {row['text']}" for row in table.to_pylist()])
    pieces = read_ragged(Tokens, world.tokens, "pieces")
    model = for_inference(tmp_path / "model", "fp32", join().device)
    found = encode_rows(model, pieces, np.arange(9), load_vocabulary(world.backbone), 128)
    assert found.shape == (9, 20)
    np.testing.assert_allclose(found, expected, atol=1e-5)


def test_a_head_is_drawn_from_the_seed_and_kept_where_it_fits(world: Any, tmp_path: Path) -> None:
    shape = Shape(untied=True, head="linear-norm", width=16)
    towers = load_towers(world.backbone, shape, seed=1)
    assert towers.query.head is not towers.passage.head
    assert matrix(towers.query).equal(matrix(towers.passage))
    save_towers(towers, world.backbone, tmp_path / "model")
    for again in (shape, Shape(untied=True)):
        assert matrix(load_towers(tmp_path / "model", again, seed=2).query).equal(matrix(towers.query))
    assert not matrix(load_towers(world.backbone, shape, seed=2).query).equal(matrix(towers.query))
    assert load_towers(tmp_path / "model", Shape(untied=True, head="linear"), seed=2).query.width == 32


def matrix(encoder: TextEncoder) -> torch.Tensor:
    """The linear map of a head."""
    assert encoder.head is not None
    return encoder.head[0].linear.weight  # type: ignore[union-attr, return-value]


@pytest.mark.parametrize(
    ("shape", "complaint"),
    [
        (Shape(untied=True, bag=3, normalise=False), "--bag: one encoder makes the bags"),
        (Shape(bag=3), "--bag needs --similarity dot"),
        (Shape(width=0), "--width 0 leaves nothing without --bag"),
        (Shape(width=8), "--width 8 needs --head linear or linear-norm"),
    ],
)
def test_shapes_that_contradict_themselves_are_refused(shape: Shape, complaint: str) -> None:
    with pytest.raises(Refusal, match=complaint):
        shape.refuse()


def test_unknown_activations_and_absent_files_are_refused(world: Any, tmp_path: Path) -> None:
    encoder = load_encoder(world.backbone)
    encoder.head = new_head(32, 8, False, seed=3)
    save_encoder(encoder, world.backbone, tmp_path / "model")
    config = tmp_path / "model" / "2_Dense" / "config.json"
    config.write_text(config.read_text().replace("linear.Identity", "activation.Hardswish"))
    with pytest.raises(Refusal, match=r"activation_function torch.nn.modules.activation.Hardswish is unknown here$"):
        load_head(tmp_path / "model")
    (tmp_path / "model" / "2_Dense" / "model.safetensors").unlink()
    with pytest.raises(Refusal, match=r"2_Dense/model.safetensors: no such file$"):
        load_head(tmp_path / "model")


def test_each_tower_reads_its_own_and_both_are_folders(world: Any, tmp_path: Path) -> None:
    towers = load_towers(world.backbone, UNTIED)
    with torch.no_grad():
        for parameter in towers.query.parameters():
            parameter.mul_(1.1)
    save_towers(towers, world.backbone, tmp_path / "model")
    again = load_towers(tmp_path / "model", UNTIED)
    text = single(read_ragged(Tokens, world.tokens, "pieces"), np.arange(3), load_vocabulary(world.backbone), 30)
    for asks in (True, False):
        assert torch.equal(again(text, asks), towers(text, asks))
    assert not torch.allclose(again(text, True), again(text, False))
    with pytest.raises(Refusal, match=r"model/query: queries have an encoder of their own here; say --towers untied$"):
        load_towers(tmp_path / "model", Shape())
    mine(tmp_path / "model", world.tokens, world.queries, tmp_path / "run", depth=60, longest=128, precision="fp32")
    asked = Queries.read(world.queries).slice(0, 1).to_pylist()[0]
    query = SentenceTransformer(str(query_folder(tmp_path / "model")), device="cpu").encode(asked["text"])
    rows = Passages.read(world.passages).to_pylist()
    passages = SentenceTransformer(str(tmp_path / "model"), device="cpu")
    expected = passages.encode([f"{row['title']} {row['text']}" for row in rows]) @ query
    scores = {row["passage_id"]: row["score"] for row in Run.read(tmp_path / "run").slice(0, 60).to_pylist()}
    np.testing.assert_allclose([scores[row["passage_id"]] for row in rows], expected, rtol=1e-4, atol=1e-4)


def test_one_encoder_is_trained_once() -> None:
    towers = Towers(torch.nn.Linear(2, 2))  # type: ignore[arg-type]
    assert towers.tied
    assert [name for name, _ in towers.named_parameters()] == ["passage.weight", "passage.bias"]
