"""Intervals and tests against scipy, exact enumeration, and what they promise: coverage and level."""

from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from stages.measuring import significance
from stages.measuring.significance import holm, mean_interval, paired_p


def test_interval_is_scipys_percentile_bootstrap() -> None:
    values = np.random.default_rng(0).beta(0.5, 0.5, size=(200, 2))
    mean, low, high = mean_interval(values, draws=20_000, seed=3)
    np.testing.assert_allclose(mean, values.mean(axis=0))
    for column in range(2):
        theirs = stats.bootstrap(
            (values[:, column],), np.mean, n_resamples=20_000, method="percentile", rng=np.random.default_rng(1)
        ).confidence_interval
        assert low[column] == pytest.approx(theirs.low, abs=0.003)
        assert high[column] == pytest.approx(theirs.high, abs=0.003)


def test_interval_covers_the_truth_as_often_as_it_says() -> None:
    random = np.random.default_rng(0)
    samples = random.exponential(size=(80, 600))  # 600 samples of 80 queries, mean 1
    _, low, high = mean_interval(samples, draws=500, seed=1)
    assert 0.90 < ((low < 1) & (high > 1)).mean() < 0.97


def test_interval_of_one_value_is_that_value() -> None:
    assert [column.tolist() for column in mean_interval(np.array([[0.25, 1.0]]), draws=50)] == [[0.25, 1.0]] * 3
    assert [column.tolist() for column in mean_interval(np.full((9, 1), 0.5), draws=50)] == [[0.5]] * 3


def exact(differences: np.ndarray) -> float:
    """p by all sign patterns."""
    sums = [abs(np.dot(signs, differences)) for signs in product((-1, 1), repeat=len(differences))]
    return float(np.mean(np.array(sums) >= abs(differences.sum()) - 1e-9))


@settings(max_examples=25, deadline=None)
@given(st.lists(st.sampled_from([-1.0, -0.5, -1 / 3, 0.0, 0.1, 0.5, 1.0]), min_size=1, max_size=9))
def test_p_is_that_of_all_sign_patterns(values: list[float]) -> None:
    differences = np.array(values)
    assert paired_p(differences[:, None], draws=20_000)[0] == pytest.approx(exact(differences), abs=0.02)


def test_p_is_scipys() -> None:
    random = np.random.default_rng(2)
    first = random.beta(0.5, 0.5, size=60)
    second = np.clip(first + random.normal(0.05, 0.2, size=60), 0, 1)
    theirs = stats.permutation_test(
        (first, second),
        lambda x, y, axis: np.mean(x - y, axis=axis),
        permutation_type="samples",
        vectorized=True,
        n_resamples=20_000,
        rng=np.random.default_rng(0),
    ).pvalue
    assert paired_p((first - second)[:, None], draws=20_000)[0] == pytest.approx(theirs, abs=0.01)


def test_p_has_its_level_when_nothing_differs() -> None:
    differences = np.random.default_rng(0).normal(size=(50, 2000))
    p = paired_p(differences, draws=999, seed=5)
    assert (p < 0.05).mean() == pytest.approx(0.05, abs=0.015)
    assert (p < 0.5).mean() == pytest.approx(0.5, abs=0.04)


def test_p_is_never_zero_and_is_one_without_a_difference() -> None:
    differences = np.stack([np.ones(200), np.zeros(200)], axis=1)
    assert paired_p(differences, draws=99).tolist() == [0.01, 1.0]


def test_two_sided_and_not_moved_by_queries_that_tie() -> None:
    differences = np.random.default_rng(1).normal(0.2, 1, size=(40, 1))
    assert paired_p(differences, 5_000, 7) == paired_p(-differences, 5_000, 7)
    padded = np.concatenate([differences, np.zeros((30, 1))])
    assert paired_p(padded, 20_000) == pytest.approx(paired_p(differences, 20_000), abs=0.02)


def test_same_seed_same_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    values = np.random.default_rng(0).normal(size=(30, 3))
    assert all(map(np.array_equal, mean_interval(values, 200, 4), mean_interval(values, 200, 4)))
    assert not np.array_equal(mean_interval(values, 200, 4)[1], mean_interval(values, 200, 5)[1])
    whole = mean_interval(values, 200, 4), paired_p(values, 200, 4)
    monkeypatch.setattr(significance, "CELLS", 32 * 40)  # in five chunks: as exact, in less memory
    assert paired_p(values, 200, 4).tolist() == whole[1].tolist()
    np.testing.assert_allclose(mean_interval(values, 200, 4), whole[0], atol=0.1)


def test_holm_by_hand() -> None:
    assert holm(np.array([0.01, 0.04, 0.03, 0.005])).tolist() == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm(np.array([0.9, 0.6])).tolist() == [1.0, 1.0]
    assert holm(np.array([])).tolist() == []


@settings(max_examples=40, deadline=None)
@given(st.lists(st.floats(0, 1), min_size=1, max_size=12))
def test_holm_keeps_the_order_and_is_between_none_and_bonferroni(p: list[float]) -> None:
    plain = np.array(p)
    adjusted = holm(plain)
    assert (adjusted >= plain).all()
    assert (adjusted <= np.minimum(plain * len(p), 1) + 1e-12).all()
    assert (np.diff(adjusted[np.argsort(plain, kind="stable")]) >= 0).all()
