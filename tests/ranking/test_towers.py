"""Towers and heads: trained apart, kept apart, and read elsewhere as they are read here."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sentence_transformers import SentenceTransformer

from stages.artifacts.checkpoints import load_encoder, load_vocabulary, save_encoder
from stages.artifacts.heads import load_head, new_head
from stages.artifacts.ragged import read_ragged
from stages.artifacts.refusal import Refusal
from stages.artifacts.tables import Passages, Queries, Run, Tokens
from stages.embedding.pieces import single
from stages.embedding.vectors import encode_rows
from stages.mining import mine
from stages.ranking.encoding import for_inference
from stages.ranking.towers import Towers, add_heads, load_towers, query_folder, save_towers
from stages.training.processes import join


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


def test_a_head_is_drawn_from_the_seed_and_kept_where_it_fits(world: Any) -> None:
    towers = load_towers(world.backbone, "untied", 0.0, True)
    add_heads(towers, "linear-norm", 16, seed=1)
    first = towers.query.head
    assert first is not None
    assert first is not towers.passage.head
    add_heads(towers, "linear-norm", 16, seed=2)
    assert towers.query.head is first
    add_heads(towers, "none", None, seed=2)
    assert towers.query.head is first
    add_heads(towers, "linear", None, seed=2)
    assert towers.query.width == 32
    assert torch.equal(towers.query.head[0].linear.weight, towers.passage.head[0].linear.weight)


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
    towers = load_towers(world.backbone, "untied", 0.0, False)
    with torch.no_grad():
        for parameter in towers.query.parameters():
            parameter.mul_(1.1)
    save_towers(towers, world.backbone, tmp_path / "model")
    again = load_towers(tmp_path / "model", "untied", 0.0, False)
    text = single(read_ragged(Tokens, world.tokens, "pieces"), np.arange(3), load_vocabulary(world.backbone), 30)
    for asks in (True, False):
        assert torch.equal(again(text, asks), towers(text, asks))
    assert not torch.allclose(again(text, True), again(text, False))
    with pytest.raises(Refusal, match=r"model/query: queries have an encoder of their own here; say --towers untied$"):
        load_towers(tmp_path / "model", "tied", 0.0, False)
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
