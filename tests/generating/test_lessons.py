"""The two losses against transformers' own; batches as functions of seed and step."""

from itertools import chain
from pathlib import Path

import numpy as np
import torch

from stages.artifacts.ragged import Ragged
from stages.generating.lessons import PairLearner, Pairs, StreamLearner, Windows
from tests.conftest import World
from tests.generating.build import model


def rows(seed: int, count: int) -> Ragged:
    rng = np.random.default_rng(seed)
    return Ragged.of([rng.integers(5, 90, rng.integers(1, 9)) for _ in range(count)], np.int64)


def test_the_loss_of_pairs_is_that_of_transformers(world: World) -> None:
    t5 = model("encoder-decoder", Path(world.backbone))
    lesson = Pairs(rows(1, 10), rows(2, 10), batch=10, seed=0)(0)[0]
    mask = (torch.arange(lesson.ids.shape[1]) < lesson.lengths[:, None]).long()
    wanted = t5(input_ids=lesson.ids, attention_mask=mask, labels=lesson.labels).loss
    torch.testing.assert_close(PairLearner(t5)(lesson, lesson.counts)[0], wanted)
    half = PairLearner(t5)(lesson, {"labels": 2 * lesson.counts["labels"]})[0]
    torch.testing.assert_close(half, wanted / 2)


def test_the_loss_of_a_stream_is_that_of_transformers(world: World) -> None:
    gpt2 = model("causal", Path(world.backbone))
    stream = np.random.default_rng(0).integers(5, 90, 3000).astype(np.int32)
    lesson = Windows(stream, np.arange(100), width=40, batch=20, seed=0)(3)[0]
    whole = torch.cat([lesson.ids, lesson.labels[:, -1:]], dim=1)
    torch.testing.assert_close(StreamLearner(gpt2)(lesson, lesson.counts)[0], gpt2(whole, labels=whole).loss)


def test_an_epoch_has_every_pair_once_and_another_order_the_next_time() -> None:
    sources = Ragged.of([[row] for row in range(12)], np.int64)
    pairs = Pairs(sources, sources, batch=4, seed=1)
    seen = [pairs(step)[0].ids[:, 0].tolist() for step in range(6)]
    assert sorted(chain(*seen[:3])) == sorted(chain(*seen[3:])) == list(range(12))
    assert seen[:3] != seen[3:]
    assert pairs(4)[0].ids[:, 0].tolist() == seen[4]
    assert Pairs(sources, sources, batch=99, seed=1)(7)[0].ids.shape == (12, 1)


def test_windows_are_pieces_of_the_stream_under_their_new_names() -> None:
    stream, renamed = np.arange(50, dtype=np.int32) * 2, np.arange(100) // 2
    lesson = Windows(stream, renamed, width=8, batch=6, seed=2)(0)[0]
    assert (lesson.labels == lesson.ids + 1).all()
    assert lesson.ids.shape == (6, 8)
    assert Windows(stream, renamed, width=80, batch=6, seed=2)(0)[0].labels[:, -1].tolist() == [49] * 6
