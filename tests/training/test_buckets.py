"""Batches: every row once an epoch, alike in length, a function of the seed."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from stages.training.buckets import Buckets, cut


@settings(max_examples=40, deadline=None)
@given(st.lists(st.integers(0, 50), min_size=1, max_size=300), st.integers(1, 40), st.integers(0, 5))
def test_an_epoch_sees_every_long_enough_row_once(lengths: list[int], batch: int, seed: int) -> None:
    buckets = Buckets(np.array(lengths), batch, seed, shortest=2)
    rows = np.concatenate([buckets(step) for step in range(buckets.per_epoch)] or [np.empty(0, int)])
    enough = [row for row, length in enumerate(lengths) if length >= 2]
    assert len(set(rows.tolist())) == len(rows)
    assert set(rows.tolist()) <= set(enough)
    assert len(enough) - len(rows) < max(buckets.batch, 1)


def test_epochs_differ_and_seeds_differ_but_a_step_is_a_function() -> None:
    lengths = np.random.default_rng(0).integers(1, 100, 1000)
    buckets = Buckets(lengths, 10, 1)
    first, second = (np.concatenate([buckets(step + 100 * epoch) for step in range(100)]) for epoch in (0, 1))
    assert not np.array_equal(first, second)
    assert not np.array_equal(buckets(0), Buckets(lengths, 10, 2)(0))
    assert np.array_equal(buckets(57), Buckets(lengths, 10, 1)(57))


def test_little_is_padding() -> None:
    lengths = np.random.default_rng(0).integers(10, 128, 4000)
    buckets = Buckets(lengths, 32, 0)
    real = padded = 0
    for step in range(buckets.per_epoch):
        own = lengths[buckets(step)]
        real, padded = real + own.sum(), padded + len(own) * own.max()
    assert 1 - real / padded < 0.05


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(1, 60), min_size=1, max_size=60), st.integers(1, 500), st.integers(0, 200))
def test_cuts_cover_the_rows_within_the_bounds_and_end_only_where_they_must(
    lengths: list[int], padded: int, padding: int
) -> None:
    ordered = np.sort(lengths)
    runs = cut(ordered, padded, padding)
    assert [row for run in runs for row in range(run.start, run.stop)] == list(range(len(ordered)))
    for run in runs:
        count = run.stop - run.start
        wide, real = count * ordered[run].max(), ordered[run].sum()
        assert count == 1 or wide <= padded
        assert wide - real <= padding
        if run.stop < len(ordered):
            wide, real = (count + 1) * ordered[run.stop], real + ordered[run.stop]
            assert wide > padded or wide - real > padding


def test_without_a_bound_on_padding_runs_end_when_full() -> None:
    assert cut(np.array([1, 2, 30, 30]), 90) == [slice(0, 3), slice(3, 4)]
    assert cut(np.array([1, 2, 30, 30]), 120) == [slice(0, 4)]
    assert cut(np.array([1, 2, 30, 30]), 120, 40) == [slice(0, 2), slice(2, 4)]
    assert cut(np.array([], dtype=np.int64), 10) == []
