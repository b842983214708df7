"""Vectors on disk: right, in order, resumable, found again."""

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import AutoTokenizer

from stages.artifacts.checkpoints import load_encoder, load_tokenizer, load_vocabulary, save_encoder
from stages.artifacts.ragged import Ragged, read_ragged
from stages.artifacts.tables import Tokens
from stages.embedding.pieces import BUDGET, chunks, single, tokenised
from stages.ranking import encoding
from stages.ranking.encoding import Wanted, encode, make_room
from stages.ranking.pieces import paired
from stages.training.processes import Processes

ALONE = Processes(0, 1, torch.device("cpu"))


@pytest.fixture
def pieces(world: Any) -> Ragged:
    return read_ragged(Tokens, world.tokens, "pieces")


def one_by_one(folder: Path, pieces: Ragged, longest: int) -> np.ndarray:
    """Each text alone: no padding, no batches."""
    encoder, vocabulary = load_encoder(folder).eval(), load_vocabulary(folder)
    rows = []
    for i in range(len(pieces)):
        text = pieces.values[pieces.offsets[i] : pieces.offsets[i + 1]][: longest - 2]
        ids = torch.tensor([[vocabulary.cls, *text.tolist(), vocabulary.sep]])
        with torch.no_grad():
            rows.append(encoder(ids, torch.tensor([ids.shape[1]]))[0].numpy())
    return np.stack(rows)


def test_batches_by_length_give_each_text_its_own_vector(
    world: Any, pieces: Ragged, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(encoding, "SHARD", 16)
    monkeypatch.setitem(BUDGET, "cpu", 100)
    vectors = encode(world.backbone, Wanted(pieces, "t", 24), "fp32", ALONE)
    assert len(vectors) == len(pieces)
    assert vectors.tokens == int(np.minimum(pieces.lengths + 2, 24).sum())
    everything = np.concatenate(vectors.shards)
    np.testing.assert_allclose(everything, one_by_one(world.backbone, pieces, 24), atol=2e-5)
    rows = np.array([40, 0, 17, 40, 3])
    np.testing.assert_array_equal(vectors.take(rows), everything[rows])
    blocks = list(vectors.blocks(32))
    assert [start for start, _ in blocks] == list(range(0, len(pieces), 32))
    np.testing.assert_array_equal(np.concatenate([block for _, block in blocks]), everything)


def test_bfloat16_is_near(world: Any, pieces: Ragged) -> None:
    exact, near = (
        np.concatenate(encode(world.backbone, Wanted(pieces, "t", 24), p, ALONE).shards) for p in ("fp32", "bf16")
    )
    assert near.dtype == np.float32
    cosine = (exact * near).sum(1) / np.linalg.norm(exact, axis=1) / np.linalg.norm(near, axis=1)
    assert cosine.min() > 0.999


def test_bfloat16_tells_texts_apart_whose_vectors_are_alike(world: Any, pieces: Ragged, tmp_path: Path) -> None:
    alike = load_encoder(world.backbone)
    with torch.no_grad():
        for layer in alike.transformer.encoder.layer:
            layer.output.LayerNorm.bias += 1
    save_encoder(alike, world.backbone, tmp_path / "alike")
    exact, near = (
        np.concatenate(encode(tmp_path / "alike", Wanted(pieces, "t", 24), p, ALONE).shards) for p in ("fp32", "bf16")
    )
    assert (exact @ exact.T).min() > 0.9999
    spread = np.linalg.norm(exact - exact.mean(0), axis=1).mean()
    assert np.linalg.norm(near - exact, axis=1).mean() < 0.3 * spread  # 2.6 with all weights and states in bfloat16


def test_what_is_there_is_not_encoded_again_and_another_model_or_length_is_another_set(
    world: Any, pieces: Ragged, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(encoding, "SHARD", 16)
    first = encode(world.backbone, Wanted(pieces, "t", 24), "bf16", ALONE)
    assert first.fresh == len(first.shards) > 1
    again = encode(world.backbone, Wanted(pieces, "t", 24), "bf16", ALONE)
    assert again.fresh == 0
    assert again.speed == first.speed
    np.testing.assert_array_equal(np.concatenate(first.shards), np.concatenate(again.shards))
    assert encode(world.backbone, Wanted(pieces, "t", 25), "bf16", ALONE).fresh > 0
    assert encode(world.backbone, Wanted(pieces, "u", 24), "bf16", ALONE).fresh > 0


def test_only_the_last_used_sets_stay(tmp_path: Path) -> None:
    for age in range(6):
        (tmp_path / f"vectors-{age}").mkdir()
        mark = tmp_path / f"vectors-{age}" / encoding.USED
        mark.touch()
        os.utime(mark, (1000 - age, 1000 - age))
    make_room(tmp_path / "vectors-4")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["vectors-0", "vectors-1", "vectors-4"]


KILLED = """
import os, signal, sys
from pathlib import Path
from stages.ranking import encoding, shards
encoding.SHARD = 16
save = shards.Shards.save
def save_then_die(self, number, *rest):
    save(self, number, *rest)
    if number == 1:
        os.kill(os.getpid(), signal.SIGKILL)
shards.Shards.save = save_then_die
from stages.mining import mine
model, tokens, queries, out = map(Path, sys.argv[1:])
mine(model, tokens, queries, out, longest=24)
"""


def test_killed_and_run_again_is_as_if_never_killed(
    world: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from stages.mining import mine

    monkeypatch.setattr(encoding, "SHARD", 16)
    arguments = [str(path) for path in (world.backbone, world.tokens, world.queries, tmp_path / "run")]
    killed = subprocess.run([sys.executable, "-W", "ignore", "-c", KILLED, *arguments], capture_output=True)
    assert killed.returncode == -signal.SIGKILL, killed.stderr.decode()
    assert not (tmp_path / "run").exists()
    (kept,) = (tmp_path / "scratch").glob("vectors-*")
    assert sorted(path.name for path in kept.glob("*.npy")) == ["00000000.npy", "00000001.npy"]
    before = {path: path.stat().st_mtime_ns for path in kept.glob("*.npy")}
    mine(world.backbone, world.tokens, world.queries, tmp_path / "run", longest=24)
    assert {path: path.stat().st_mtime_ns for path in before} == before
    monkeypatch.setenv("ISTHMUS_SCRATCH", str(tmp_path / "elsewhere"))
    mine(world.backbone, world.tokens, world.queries, tmp_path / "whole", longest=24)
    assert (tmp_path / "run").read_bytes() == (tmp_path / "whole").read_bytes()


def test_texts_are_framed_and_cut(world: Any) -> None:
    vocabulary = load_vocabulary(world.backbone)
    pieces = Ragged.of([[11, 12, 13, 14], [21], []], np.int32)
    text = single(pieces, np.array([2, 0, 1]), vocabulary, longest=5)
    c, s, p = vocabulary.cls, vocabulary.sep, vocabulary.pad
    assert text.ids.tolist() == [[c, s, p, p, p], [c, 11, 12, 13, s], [c, 21, s, p, p]]
    assert text.lengths.tolist() == [2, 5, 3]
    queries = Ragged.of([[1, 2, 3, 4, 5], [6], []], np.int32)
    pair = paired(queries, pieces, vocabulary, longest=8, longest_query=5)
    assert pair.ids.tolist() == [[c, 1, 2, 3, s, 11, 12, s], [c, 6, s, 21, s, p, p, p], [c, s, s, p, p, p, p, p]]
    assert pair.segments.tolist() == [[0, 0, 0, 0, 0, 1, 1, 1], [0, 0, 0, 1, 1, 0, 0, 0], [0, 0, 1, 0, 0, 0, 0, 0]]
    assert pair.lengths.tolist() == [8, 5, 3]


def test_ids_are_those_that_the_tokenizer_makes(world: Any) -> None:
    theirs = AutoTokenizer.from_pretrained(world.backbone)
    tokenizer, vocabulary = load_tokenizer(world.backbone), load_vocabulary(world.backbone)
    texts, others = ["bake limo", "nura seti vozu"], ["keli bamo", "zu"]
    pieces, behind = tokenised(texts, tokenizer), tokenised(others, tokenizer)
    framed = single(pieces, np.arange(2), vocabulary, 99)
    pair = paired(pieces, behind, vocabulary, 99, 99)
    for i, (text, other) in enumerate(zip(texts, others, strict=True)):
        assert framed.ids[i, : framed.lengths[i]].tolist() == theirs(text)["input_ids"]
        expected = theirs(text, other)
        assert pair.ids[i, : pair.lengths[i]].tolist() == expected["input_ids"]
        assert pair.segments[i, : pair.lengths[i]].tolist() == expected["token_type_ids"]


def test_chunks_hold_every_row_once_within_the_budget() -> None:
    lengths = np.random.default_rng(1).integers(1, 60, 500)
    parts = chunks(lengths, 256, ALONE.device)
    assert sorted(np.concatenate(parts).tolist()) == list(range(500))
    assert all(len(part) * lengths[part].max() <= 256 for part in parts)
    assert sum(len(part) * lengths[part].max() for part in parts) < 1.06 * lengths.sum()
