"""The figures' numbers: against slow sums, and what must hold of masks."""

import csv
import json
from pathlib import Path

import numpy as np
import pytest
import torch

from stages.artifacts.checkpoints import load_encoder, load_vocabulary
from stages.artifacts.ragged import read_ragged
from stages.artifacts.refusal import Refusal
from stages.artifacts.tables import Tokens, Weights
from stages.embedding.probe import mean_cosine, normalised
from stages.geometry import cosines, positions
from stages.masking import by_frequency, masks
from tests.conftest import World


def test_the_mean_over_pairs_without_looking_at_pairs() -> None:
    vectors = np.random.default_rng(0).normal(size=(30, 8)).astype(np.float32)
    units = [vector / np.linalg.norm(vector) for vector in vectors]
    slow = np.mean([units[i] @ units[j] for i in range(30) for j in range(30) if i != j])
    assert mean_cosine(normalised(vectors)) == pytest.approx(slow, abs=1e-6)
    assert mean_cosine(normalised(np.ones((4, 3)))) == pytest.approx(1)


def test_cosines_by_length(world: World, tmp_path: Path) -> None:
    options = {"tokens": world.tokens, "precision": "fp32"}
    cosines([world.backbone], out=tmp_path / "c.json", lengths=[32, 8, 512], sample=10, **options)  # type: ignore[arg-type]
    rows = json.loads((tmp_path / "c.json").read_text())
    assert [(row["length"], row["texts"]) for row in rows] == [(8, 10), (32, 10)]
    assert all(-1 <= row["backbone"] <= 1 for row in rows)
    with pytest.raises(Refusal, match=r"no two passages of 500 pieces$"):
        cosines([world.backbone], out=tmp_path / "d.json", lengths=[500], **options)  # type: ignore[arg-type]


def test_similarity_to_the_first_state(world: World, tmp_path: Path) -> None:
    options = {"longest": 16, "precision": "fp32", "sample": 10_000}
    positions([world.backbone], world.tokens, tmp_path / "p.json", **options)  # type: ignore[arg-type]
    rows = json.loads((tmp_path / "p.json").read_text())
    assert [row["position"] for row in rows] == list(range(16))
    assert rows[0]["backbone"] == pytest.approx(1)
    pieces, vocabulary = read_ragged(Tokens, world.tokens, "pieces"), load_vocabulary(world.backbone)
    encoder, found = load_encoder(world.backbone).eval(), []
    for row in range(len(pieces)):
        text = pieces.values[pieces.offsets[row] : pieces.offsets[row + 1]][:14].tolist()
        if len(text) == 14:
            ids = torch.tensor([[vocabulary.cls, *text, vocabulary.sep]])
            with torch.inference_mode():
                states = encoder.states(ids, torch.tensor([16]))[0]
            found.append(torch.cosine_similarity(states, states[:1]).numpy())
    np.testing.assert_allclose([row["backbone"] for row in rows], np.mean(found, axis=0), atol=1e-4)


def test_what_masks_hide(world: World, tmp_path: Path) -> None:
    rows = Tokens.read(world.tokens).to_pylist()
    first = np.bincount([piece for row in rows for piece in row["pieces"]]).argmax()
    weights = [
        [
            1e-9 if first in np.array(row["pieces"])[np.array(row["word_of_piece"]) == word] else 1.0
            for word in range(len(row["words"]))
        ]
        for row in rows
    ]
    names = [row["passage_id"] for row in rows]
    Weights.write(tmp_path / "weights", {"passage_id": names, "weight": weights})
    tables = world.passages, world.tokens, world.backbone, tmp_path / "weights", world.salience
    masks(*tables, tmp_path / "m.json", tmp_path / "m.tsv", ratio=0.3, count=5)
    rows = json.loads((tmp_path / "m.json").read_text())
    total = sum(row["occurrences"] for row in rows)
    for name in ("random", "weighted", "salient"):
        share = sum(row[name] * row["occurrences"] for row in rows) / total
        assert 0.2 < share <= 0.31
    assert rows[0]["pieces"] == 1
    assert rows[0]["random"] == pytest.approx(0.3, abs=0.1)
    assert rows[0]["weighted"] < 0.05  # the weights leave the words of the commonest piece alone
    with (tmp_path / "m.tsv").open() as file:
        lines = list(csv.DictReader(file, delimiter="\t"))
    assert [line["strategy"] for line in lines] == ["random"] * 5 + ["weighted"] * 5 + ["salient"] * 5
    assert all(0 < int(line["hidden"]) <= int(line["occurrences"]) for line in lines)


def test_ranks_by_powers_of_two() -> None:
    seen = np.array([0, 5, 9, 1, 3, 2])
    rows = by_frequency(seen, {"all": seen, "none": seen * 0})
    assert [(row["rank"], row["pieces"], row["occurrences"]) for row in rows] == [(1, 1, 9), (2, 2, 8), (4, 2, 3)]
    assert {(row["all"], row["none"]) for row in rows} == {(1, 0)}
