"""Text to ids and back, with all pieces and with the kept ones."""

import numpy as np

from stages.artifacts.checkpoints import load_tokenizer, load_vocabulary
from stages.generating.own import _ending
from stages.generating.pieces import Pieces
from tests.conftest import World

TEXTS = ["bake limo nura", "seti [SEP] vozu", ""]


def test_kept_pieces_are_renamed_and_read_back(world: World) -> None:
    plain = Pieces(load_tokenizer(world.backbone)).whole(TEXTS)
    kept = np.unique(plain.values)
    pieces = Pieces(load_tokenizer(world.backbone), kept)
    rows = pieces.whole(TEXTS)
    assert set(rows.values.tolist()) == set(range(len(kept)))
    assert (kept[rows.values] == plain.values).all()
    assert pieces.texts([rows.values[: rows.offsets[1]]]) == [TEXTS[0]]


def test_a_text_that_spells_a_special_piece_stays_text(world: World) -> None:
    pieces = Pieces(load_tokenizer(world.backbone))
    assert load_vocabulary(world.backbone).sep not in pieces.whole(TEXTS).values


def test_prompts_are_cut_on_the_side_asked_for(world: World) -> None:
    end = load_vocabulary(world.backbone).sep
    pieces = Pieces(_ending(load_tokenizer(world.backbone), end))
    whole = pieces.whole(TEXTS[:1]).values.tolist()
    assert len(whole) > 3
    assert pieces.prompts(TEXTS[:1], 4, "right").values.tolist() == [*whole[:3], end]
    assert pieces.prompts(TEXTS[:1], 4, "left").values.tolist() == [*whole[-3:], end]
    assert pieces.prompts(TEXTS[2:], 4, "left").values.tolist() == [end]
    assert pieces.whole(TEXTS[:1]).values.tolist() == whole  # the cut leaves nothing behind


def test_texts_are_single_lines_without_special_pieces(world: World) -> None:
    pieces, vocabulary = Pieces(load_tokenizer(world.backbone)), load_vocabulary(world.backbone)
    ids = pieces.whole(["bake limo"]).values
    assert pieces.texts([np.concatenate([[vocabulary.cls], ids, [vocabulary.sep, vocabulary.pad]])]) == ["bake limo"]
    assert pieces.texts([np.array([vocabulary.sep])]) == [""]
    assert set(pieces.special().tolist()) == set(vocabulary.special)
