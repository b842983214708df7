"""Masks: budgets, whole words, relations between masks, and the distributions that the papers define."""

from itertools import permutations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stages.bottleneck.masks import Mask, Words, budget, draw, hide, hide_rows

SIZES = st.lists(st.lists(st.integers(1, 4), min_size=1, max_size=12), min_size=1, max_size=6)


def padded(rows: list[list[int]]) -> np.ndarray:
    width = max(len(row) for row in rows)
    return np.array([row + [0] * (width - len(row)) for row in rows])


def noise(seed: int, shape: tuple[int, ...]):  # type: ignore[no-untyped-def]
    rng = np.random.default_rng(seed)
    return lambda kind: (rng.random(shape) if kind == "uniform" else rng.standard_normal(shape)).astype(np.float32)


def slowly(scores: list[float], sizes: list[int], pieces: int) -> list[bool]:
    """The rule as the released collators write it: words in order, passing over one that does not fit."""
    taken, left = [False] * len(sizes), pieces
    for word in sorted(range(len(sizes)), key=lambda word: -scores[word]):
        if 0 < sizes[word] <= left:
            taken[word], left = True, left - sizes[word]
    return taken


@settings(max_examples=150, deadline=None)
@given(SIZES, st.floats(0.01, 0.99), st.integers(0, 10**6))
def test_hide_is_the_greedy_rule(rows: list[list[int]], ratio: float, seed: int) -> None:
    sizes = padded(rows)
    scores = np.random.default_rng(seed).permutation(sizes.size).reshape(sizes.shape).astype(np.float32)
    pieces = budget(sizes, ratio)
    expected = [slowly(scores[i].tolist(), sizes[i].tolist(), int(pieces[i])) for i in range(len(sizes))]
    assert hide(scores, sizes, pieces).tolist() == expected


@settings(max_examples=100, deadline=None)
@given(st.lists(st.integers(1, 9), min_size=1, max_size=256), st.integers(1, 5), st.floats(0.01, 0.99), st.integers(0))
def test_rows_of_one_text_follow_the_same_rule(words: list[int], rows: int, ratio: float, seed: int) -> None:
    sizes = np.array(words)
    noise = np.random.default_rng(seed).integers(2**32, size=(rows, len(words)), dtype=np.uint32)
    pieces = int(budget(sizes[None], ratio)[0])
    scores = (-(noise >> 8).astype(np.float64) - np.arange(len(words)) / 1024).tolist()
    found = hide_rows(noise, sizes[None], np.zeros(rows, dtype=int), np.array([pieces]))
    assert found.tolist() == [slowly(row, words, pieces) for row in scores]


@settings(max_examples=80, deadline=None)
@given(
    SIZES,
    st.floats(0.05, 0.95),
    st.integers(0, 10**6),
    st.sampled_from(["random", "weighted", "salient", "superset", "spans"]),
)
def test_no_strategy_exceeds_its_budget_or_hides_padding(
    rows: list[list[int]], ratio: float, seed: int, strategy: str
) -> None:
    sizes = padded(rows)
    rng = np.random.default_rng(seed)
    words = Words(sizes, noise(seed, sizes.shape), rng.random(sizes.shape), np.zeros(sizes.shape, bool))
    mask = draw(Mask(strategy, ratio, by="w"), words)
    assert not mask[sizes == 0].any()
    assert ((mask * sizes).sum(1) <= budget(sizes, ratio)).all()


@settings(max_examples=80, deadline=None)
@given(SIZES, st.floats(0.05, 0.45), st.floats(0.5, 0.9), st.integers(0, 10**6))
def test_complement_and_superset(rows: list[list[int]], encoder: float, decoder: float, seed: int) -> None:
    sizes = padded(rows)
    hidden = draw(Mask("random", encoder), Words(sizes, noise(seed, sizes.shape)))
    words = Words(sizes, noise(seed + 1, sizes.shape), hidden=hidden)
    complement, superset = draw(Mask("complement"), words), draw(Mask("superset", decoder), words)
    assert not (complement & hidden).any()
    assert ((complement | hidden) == (sizes > 0)).all()
    # both budgets are of one text, so all that the encoder hides fits the decoder's larger one
    assert (superset >= hidden).all()
    assert draw(Mask("same"), words) is hidden
    assert not draw(Mask("none"), words).any()
    assert (draw(Mask("all"), words) == (sizes > 0)).all()


DRAWS = 10_000


def frequencies(mask: Mask, weights: np.ndarray) -> np.ndarray:
    sizes = np.ones((DRAWS, len(weights)), dtype=int)
    words = Words(sizes, noise(3, sizes.shape), np.tile(weights, (DRAWS, 1)))
    drawn = draw(mask, words)
    assert (drawn.sum(1) == budget(sizes, mask.ratio)).all()
    return drawn.mean(0)


def close(found: np.ndarray, expected: np.ndarray) -> bool:
    error = np.sqrt(np.maximum(expected * (1 - expected), 1e-6) / DRAWS)
    return bool((np.abs(found - expected) < 4.5 * error).all())


def test_uniform_masks_are_uniform() -> None:
    assert close(frequencies(Mask("random", 0.3), np.ones(10)), np.full(10, 0.3))


def test_weighted_masks_are_draws_without_replacement() -> None:
    weights = np.array([1.0, 2.0, 3.0, 4.0])
    expected = np.zeros(4)
    for order in permutations(range(4), 2):
        first, second = order
        share = weights[first] / 10 * weights[second] / (10 - weights[first])
        expected[list(order)] += share
    assert close(frequencies(Mask("weighted", 0.5, by="w"), weights), expected)


def test_salient_masks_are_noisy_top_k() -> None:
    weights = np.array([0.0, 0.5, 1.0, 2.0, 3.0])
    rng = np.random.default_rng(0)
    noisy = weights + rng.standard_normal((400_000, 5))
    expected = (noisy >= np.sort(noisy, 1)[:, [3]]).mean(0)  # the two largest of five
    assert close(frequencies(Mask("salient", 0.4, by="w"), weights), expected)


def test_without_noise_salience_takes_the_largest() -> None:
    mask = Mask("salient", 0.4, by="w", noise=0.0)
    assert frequencies(mask, np.array([0.0, 3.0, 1.0, 2.0, -1.0])).tolist() == [0, 1, 0, 1, 0]


def test_spans_are_stretches_of_the_length_that_the_paper_gives() -> None:
    sizes = np.ones((2_000, 200), dtype=int)
    hidden = draw(Mask("spans", 0.15), Words(sizes, noise(5, sizes.shape)))
    assert (hidden.sum(1) == 30).all()
    edges = np.diff(np.pad(hidden, ((0, 0), (1, 1))).astype(int), axis=1)
    lengths = (np.argwhere(edges == -1) - np.argwhere(edges == 1))[:, 1]
    alone = draw(Mask("random", 0.15), Words(sizes, noise(5, sizes.shape)))
    assert 3.5 < lengths.mean() < 5.0  # 3.8 words; neighbouring stretches run together, the last one is cut
    assert (np.diff(np.pad(alone, ((0, 0), (1, 1))).astype(int), axis=1) == 1).sum() > 3 * len(lengths)
    assert abs(hidden.mean(0) - 0.15).max() < 0.04  # no place is favoured


def test_salience_rounds_its_budget_down_as_algorithm_1_says() -> None:
    sizes = np.ones((1, 7), dtype=int)
    words = Words(sizes, noise(0, sizes.shape), np.arange(7.0)[None])
    assert draw(Mask("salient", 0.5, by="w"), words).sum() == 3
    assert draw(Mask("random", 0.5), words).sum() == 4
    assert budget(np.ones((1, 10), dtype=int), 0.7, down=True).tolist() == [7]  # 0.7 · 10 is a little above 7, or below


@pytest.mark.parametrize(("pieces", "expected"), [(10, 3), (5, 2), (1, 1), (0, 0), (15, 4)])
def test_budget_rounds_half_to_even_and_is_at_least_one(pieces: int, expected: int) -> None:
    assert budget(np.array([[pieces]]), 0.3).tolist() == [expected]
