"""Row masks: who sees what, whole words, budgets, distributions, and independence of processes and micro-batches."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from stages.bottleneck.masks import Mask, budget
from stages.bottleneck.visibility import GROUP, POOL, Text, visibility
from stages.training.processes import Processes
from tests.bottleneck.build import batches, named
from tests.conftest import World


def matrix(
    sizes: list[int], ratio: float, seed: int, pool: bool = False, fixed: np.ndarray | None = None
) -> np.ndarray:
    word = np.repeat(np.arange(len(sizes)), sizes)
    fixed = np.zeros(len(word), dtype=bool) if fixed is None else fixed
    (seen,) = visibility(Mask("random", ratio), [Text(word, fixed, None, np.random.default_rng(seed))], pool)
    return seen


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(1, 4), min_size=1, max_size=20), st.floats(0.1, 0.9), st.integers(0, 10**6), st.booleans())
def test_what_a_row_sees(sizes: list[int], ratio: float, seed: int, pool: bool) -> None:
    seen, word = matrix(sizes, ratio, seed, pool), np.repeat(np.arange(len(sizes)), sizes)
    allowed = int(budget(np.array([sizes]), ratio)[0])
    assert not seen.diagonal().any()
    assert seen[1:, 0].all()  # all but the vector's own row see it
    assert seen[:-1, -1].all()  # [SEP] is no word, and never hidden
    for row in range(len(seen)):
        hidden = ~seen[row, 1:-1]
        if 0 < row < len(seen) - 1:
            own = np.arange(len(word)) == row - 1
            same_word = (word == word[row - 1]) & ~own
            if same_word.any():  # its own column says nothing about the word; the rest of the word does
                hidden = np.where(own, hidden[same_word][0], hidden)
            elif hidden.sum() > allowed:
                hidden = hidden & ~own  # it alone was blanked out, not drawn
        assert hidden.sum() <= allowed
        for one in range(len(sizes)):
            assert len(set(hidden[word == one].tolist())) == 1


def test_texts_masked_together_are_masked_as_alone() -> None:
    rng = np.random.default_rng(0)
    words = [np.repeat(np.arange(n), rng.integers(1, 4, n)) for n in rng.integers(1, 40, GROUP + 3)]
    texts = [Text(word, np.zeros(len(word), bool), None, np.random.default_rng(i)) for i, word in enumerate(words)]
    for i, (word, seen) in enumerate(zip(words, visibility(Mask("random", 0.5), texts), strict=True)):
        assert np.array_equal(seen, matrix(np.bincount(word).tolist(), 0.5, i))


def test_special_pieces_inside_a_text_stay_visible() -> None:
    fixed = np.arange(12) == 4
    seen = matrix([1] * 12, 0.9, 0, fixed=fixed)
    assert np.delete(seen[:, 5], 5).all()


def test_every_row_has_a_mask_of_its_own_and_half_of_the_pieces_is_hidden() -> None:
    share, together = np.zeros((42, 42)), 0.0
    for seed in range(250):
        seen = matrix([1] * 40, 0.5, seed)
        hidden = ~seen[:, 1:-1]
        counts = hidden.sum(1)
        assert set(counts[[0, -1]].tolist()) == {20}  # rows that blank out nothing more
        assert set(counts.tolist()) <= {20, 21}
        share[:, 1:-1] += hidden / 250
        together += float((hidden[0] & hidden[-1]).mean()) / 250
    off = share[:, 1:-1][~np.eye(42, dtype=bool)[:, 1:-1]]
    assert abs(off.mean() - 0.5) < 0.005
    assert np.abs(off - 0.5).max() < 5 * (0.25 / 250) ** 0.5  # some 1,600 frequencies, none beyond five deviations
    assert abs(together - 0.25) < 5 * (0.19 / (250 * 40)) ** 0.5  # two rows are independent


def test_a_pool_has_few_masks_and_rows_draw_with_replacement() -> None:
    def distinct(pool: bool) -> int:
        seen = matrix([1] * 300, 0.5, 3, pool)
        np.fill_diagonal(seen, True)  # what the row itself blanks out is not the mask's
        hidden = ~seen[:, 1:-1]
        rows = [row for row in range(302) if hidden[row].sum() == 150]
        return len({hidden[row].tobytes() for row in rows}) / len(rows)  # type: ignore[return-value]

    assert distinct(False) == 1
    expected = POOL * (1 - (1 - 1 / POOL) ** 151) / 151  # of about 151 rows whose own piece their mask does not hide
    assert distinct(True) == pytest.approx(expected, abs=0.12)


@pytest.mark.parametrize("name", ["retromae", "dupmae-release"])
def test_processes_and_micro_batches_do_not_change_what_is_seen(world: World, name: str) -> None:
    def rows(pieces: int, size: int) -> list[tuple[list[int], list[list[bool]]]]:
        found = []
        for rank in range(size):
            for part in batches(world, named(name), 16, pieces, Processes(rank, size, torch.device("cpu")))(3):
                view = part.views["passage"]
                assert view.visible is not None
                for clean, length, seen in zip(view.clean, view.lengths.tolist(), view.visible, strict=True):
                    assert not seen[:, length:].any()
                    assert seen[length:, 0].all()
                    found.append((clean[:length].tolist(), seen[:length, :length].tolist()))
        return sorted(found)

    assert rows(10_000, 1) == rows(60, 1) == rows(100, 2)
