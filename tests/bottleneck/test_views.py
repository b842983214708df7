"""Collation: what is hidden, what is predicted, and that neither processes nor micro-batches matter."""

from pathlib import Path

import numpy as np
import pytest
import torch

from stages.artifacts.checkpoints import load_vocabulary
from stages.artifacts.tables import Passages, Tokens
from stages.bottleneck.texts import TEXTS
from stages.bottleneck.views import Collator, Draws
from stages.training.processes import Processes
from tests.bottleneck.build import RECIPES, batches, collated, corpus, named, written
from tests.conftest import World

TRAINED = [path.stem for path in sorted(RECIPES.glob("*.yaml")) if path.stem != "none"]


@pytest.mark.parametrize("name", TRAINED)
def test_special_pieces_and_padding_are_never_hidden_or_predicted(world: World, name: str) -> None:
    vocabulary = load_vocabulary(world.backbone)
    for step in range(3):
        for view in collated(world, named(name), step).views.values():
            columns = torch.arange(view.clean.shape[1])
            ordinary = (columns > 0) & (columns < view.lengths[:, None] - 1)
            assert not (view.hidden & ~ordinary).any()
            assert ordinary.reshape(-1)[view.places].all()
            assert not np.isin(view.labels.numpy(), vocabulary.special).any()
            assert (view.clean[:, 0] == vocabulary.cls).all()
            assert (view.clean[torch.arange(len(view.clean)), view.lengths - 1] == vocabulary.sep).all()
            assert torch.equal(view.clean.reshape(-1)[view.places], view.labels)
            assert torch.equal(view.ids[~view.hidden], view.clean[~view.hidden])


@pytest.mark.parametrize("name", TRAINED)
def test_words_are_hidden_whole(world: World, name: str) -> None:
    recipe, tokens = named(name), Tokens.read(world.tokens).to_pylist()
    batch = collated(world, recipe)
    whole = [key for key, view in recipe.views().items() if view.text == "passage" and view.mask.unit == "word"]
    for key in whole:
        view = batch.views[key]
        for row, hidden in zip(view.rows.tolist(), view.hidden.numpy(), strict=True):
            word_of_piece = np.array(tokens[row]["word_of_piece"])[: int(view.lengths[0].item()) - 2]
            hidden = hidden[1 : 1 + len(word_of_piece)]
            for word in set(word_of_piece[: len(hidden)].tolist()):
                assert len(set(hidden[word_of_piece[: len(hidden)] == word].tolist())) == 1


def test_masters_views_are_related_as_the_paper_says(world: World) -> None:
    batch = collated(world, named("master"))
    encoder, complement = batch.views["encoder/passage"], batch.views["complement"]
    ordinary = torch.zeros_like(encoder.hidden)
    for row, length in enumerate(encoder.lengths.tolist()):
        ordinary[row, 1 : length - 1] = True
    assert not (encoder.hidden & complement.hidden).any()
    assert torch.equal(encoder.hidden | complement.hidden, ordinary)
    ratio = encoder.hidden.sum() / ordinary.sum()
    assert 0.25 < ratio < 0.33
    documents = Passages.read(world.passages).to_pylist()
    neighbour = batch.views["neighbour"]
    for row, ids in zip(neighbour.rows.tolist(), neighbour.clean.tolist(), strict=True):
        assert documents[row]["document_id"] == documents[row + 1]["document_id"]
        following = batch.views["encoder/passage"].clean[row + 1].tolist()
        assert ids[:10] == following[:10]
    last = {
        row for row in range(len(documents) - 1) if documents[row]["document_id"] != documents[row + 1]["document_id"]
    }
    assert not last & set(neighbour.rows.tolist())


def test_bert_fills_80_10_10(world: World) -> None:
    vocabulary = load_vocabulary(world.backbone)
    kept = masked = hidden = 0
    for step in range(60):
        view = collated(world, named("mlm"), step).views["encoder/passage"]
        ids, clean = view.ids[view.hidden], view.clean[view.hidden]
        hidden += len(ids)
        masked += int((ids == vocabulary.mask).sum())
        kept += int((ids == clean).sum())
    error = 4.5 * (0.16 / hidden) ** 0.5
    assert abs(masked / hidden - 0.8) < error
    assert abs(kept / hidden - 0.1) < error  # a random piece is the piece itself once in a vocabulary


def test_processes_and_micro_batches_do_not_change_what_is_hidden(world: World) -> None:
    recipe = named("master")

    def rows(pieces: int, world_size: int) -> list[tuple[tuple[int, ...], tuple[int, ...]]]:
        found = []
        for rank in range(world_size):
            who = Processes(rank, world_size, torch.device("cpu"))
            for part in batches(world, recipe, 16, pieces, who)(3):
                for view in part.views.values():
                    for ids, clean, length in zip(
                        view.ids.tolist(), view.clean.tolist(), view.lengths.tolist(), strict=True
                    ):
                        found.append((tuple(ids[:length]), tuple(clean[:length])))
        return sorted(found)

    assert rows(10_000, 1) == rows(60, 1) == rows(100, 2)


def test_a_step_is_a_function_of_seed_and_number(world: World) -> None:
    first, again, other = (batches(world, named("mlm"))(step)[0].views["encoder/passage"].ids for step in (4, 4, 5))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


@pytest.mark.parametrize("name", sorted(TEXTS))
def test_texts_are_stretches_of_one_document(world: World, name: str) -> None:
    everything = corpus(world)
    rows = np.arange(len(everything))
    noise = np.random.default_rng(0).random(len(rows)).astype(np.float32)
    stretch = TEXTS[name](everything, rows, 12, noise)
    assert (stretch.lengths <= 12 + 12).all()
    if name in ("queries", "continuations"):
        assert (stretch.lengths[::3] == 0).all()
        return
    offsets = everything.passages.pieces.offsets
    for row, start, length in zip(rows, stretch.starts, stretch.lengths, strict=True):
        if length:
            places = np.array([start, start + length - 1])
            inside = np.searchsorted(offsets, places, side="right") - 1
            assert (everything.documents[inside] == everything.documents[row]).all()
            assert name not in ("next", "sibling", "adjacent") or (inside != row).all()


def test_a_weight_for_every_word_of_a_stretch_that_starts_anywhere(world: World, tmp_path: Path) -> None:
    recipe = written(
        tmp_path, "encoder: {passage: {text: second-half, mask: {salient: {ratio: 0.4, by: salience, noise: 0}}}}"
    )
    everything, vocabulary = corpus(world), load_vocabulary(world.backbone)
    rows = np.arange(len(everything))
    view = Collator(recipe, everything, vocabulary, 32)(rows, Draws(1, 0, len(rows), rows)).views["encoder/passage"]
    weights = everything.weights["salience"]
    for row, hidden, length in zip(view.rows.tolist(), view.hidden.numpy(), view.lengths.tolist(), strict=True):
        pieces = everything.passages.pieces
        total = min(int(pieces.lengths[row]), 30)
        start = pieces.offsets[row] + total // 2
        words = everything.passages.words(np.arange(start, start + length - 2)[None])[0]
        if len(set(np.bincount(words - words[0]).tolist())) == 1 and hidden.any():  # equal sizes: exactly the top k
            own = weights[words]
            assert own[hidden[1 : length - 1]].min() >= own[~hidden[1 : length - 1]].max() - 1e-6
