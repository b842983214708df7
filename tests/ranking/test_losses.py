"""Losses against slow loops in float64."""

import math

import hypothesis.strategies as st
import numpy as np
import pytest
import torch
from hypothesis import given, settings

from stages.ranking.losses import (
    Denominator,
    consistent,
    contrastive,
    distillation,
    listwise,
    margin_mse,
    pairwise,
    soft_labels,
    triplet,
)


def slow_contrastive(q: np.ndarray, d: np.ndarray, allowed: np.ndarray, scale: float, denominator: str) -> float:
    """Loops over queries and passages, one exponential at a time."""
    N, n = len(q), len(d) // len(q)
    total = 0.0
    for i in range(N):
        positive = d[i * n]
        terms = [math.exp(scale * float(q[i] @ d[j])) for j in range(N * n) if allowed[i, j]]
        if denominator == "eq3":
            terms += [math.exp(scale * float(positive @ d[j])) for j in range(N * n) if allowed[i, j] and j != i * n]
        if denominator == "release":
            for j in range(N):
                mine, theirs = allowed[i, j * n], allowed[j, i * n]
                if j == i:
                    continue
                terms += [math.exp(scale * float(positive @ q[j]))] * bool(theirs)
                terms += [math.exp(scale * float(q[i] @ q[j]))] * bool(mine and theirs)
                terms += [math.exp(scale * float(positive @ d[j * n]))] * bool(mine and theirs)
        total -= math.log(math.exp(scale * float(q[i] @ positive)) / sum(terms))
    return total / N


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 2**32), N=st.integers(1, 5), n=st.integers(1, 4), scale=st.sampled_from([1.0, 3.0, 20.0]))
@pytest.mark.parametrize("denominator", ["eq3", "infonce", "release"])
def test_contrastive_is_the_formula(denominator: Denominator, seed: int, N: int, n: int, scale: float) -> None:
    rng = np.random.default_rng(seed)
    q, d = rng.normal(size=(N, 6)), rng.normal(size=(N * n, 6))
    q, d = (x / np.linalg.norm(x, axis=1, keepdims=True) for x in (q, d))
    allowed = rng.random((N, N * n)) < 0.7
    allowed[np.arange(N), np.arange(N) * n] = True
    found = contrastive(torch.tensor(q), torch.tensor(d), torch.tensor(allowed), scale, denominator)
    assert found.item() == pytest.approx(slow_contrastive(q, d, allowed, scale, denominator), rel=1e-9, abs=1e-12)


def test_a_masked_passage_neither_counts_nor_gets_a_gradient() -> None:
    q, d = torch.randn(2, 4, dtype=torch.float64), torch.randn(4, 4, dtype=torch.float64, requires_grad=True)
    allowed = torch.ones(2, 4, dtype=torch.bool)
    allowed[:, 3] = False
    contrastive(q, d, allowed, 5.0, "eq3").backward()
    assert d.grad is not None
    assert d.grad[3].abs().max() == 0
    assert d.grad[1].abs().max() > 0


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 2**32), N=st.integers(1, 5), n=st.integers(2, 5))
def test_distillation_is_the_divergence_over_scored_passages(seed: int, N: int, n: int) -> None:
    rng = np.random.default_rng(seed)
    student, teacher = rng.normal(size=(N, n)) * 3, rng.normal(size=(N, n)) * 3
    teacher[:, 1:][rng.random((N, n - 1)) < 0.3] = np.nan
    total = 0.0
    for s, t in zip(student, teacher, strict=True):
        kept = [j for j in range(n) if not math.isnan(t[j])]
        ps = [math.exp(s[j]) / sum(math.exp(s[k]) for k in kept) for j in kept]
        pt = [math.exp(t[j]) / sum(math.exp(t[k]) for k in kept) for j in kept]
        total += sum(a * math.log(a / b) for a, b in zip(pt, ps, strict=True))
    leaf = torch.tensor(student, requires_grad=True)
    found = distillation(leaf, torch.tensor(teacher))
    assert found.item() == pytest.approx(total / N, rel=1e-9, abs=1e-12)
    found.backward()
    assert leaf.grad is not None
    assert leaf.grad.isfinite().all()


def test_a_student_that_agrees_has_nothing_to_learn() -> None:
    scores = torch.randn(3, 5, dtype=torch.float64)
    assert distillation(scores + 7, scores).item() == pytest.approx(0, abs=1e-12)  # a shift is no difference


def test_listwise_is_the_log_share_of_the_first() -> None:
    scores = torch.tensor([[2.0, 1.0, -1.0], [0.0, 0.0, 0.0]], dtype=torch.float64)
    first = -math.log(math.exp(2) / (math.exp(2) + math.exp(1) + math.exp(-1)))
    assert listwise(scores).item() == pytest.approx(first + math.log(3))


def slow_softmax(values: list[float]) -> list[float]:
    powers = [math.exp(value) for value in values]
    return [power / sum(powers) for power in powers]


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 2**32), N=st.integers(1, 5), n=st.integers(2, 5))
def test_other_lessons_are_their_formulas_over_scored_passages(seed: int, N: int, n: int) -> None:
    rng = np.random.default_rng(seed)
    student, teacher = rng.normal(size=(N, n)) * 3, rng.normal(size=(N, n)) * 3
    teacher[:, 1:][rng.random((N, n - 1)) < 0.3] = np.nan
    entropy, squares = 0.0, []
    for s, t in zip(student, teacher, strict=True):
        kept = [j for j in range(n) if not math.isnan(t[j])]
        shares = zip(slow_softmax([t[j] for j in kept]), slow_softmax([s[j] for j in kept]), strict=True)
        entropy -= sum(right * math.log(ours) for right, ours in shares)
        squares += [((s[0] - s[j]) - (t[0] - t[j])) ** 2 for j in kept[1:]]
    for lesson, expected in ((soft_labels, entropy / N), (margin_mse, sum(squares) / max(len(squares), 1))):
        leaf = torch.tensor(student, requires_grad=True)
        found = lesson(leaf, torch.tensor(teacher))
        assert found.item() == pytest.approx(expected, rel=1e-9, abs=1e-12)
        found.backward()
        assert leaf.grad is not None
        assert leaf.grad.isfinite().all()


def test_soft_labels_pull_as_the_divergence_does() -> None:
    teacher, grads = torch.randn(3, 5, dtype=torch.float64), []
    for lesson in (distillation, soft_labels):
        leaf = torch.linspace(-1, 2, 15, dtype=torch.float64).view(3, 5).requires_grad_()
        lesson(leaf, teacher).backward()
        grads.append(leaf.grad)
    torch.testing.assert_close(*grads)


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 2**32), N=st.integers(1, 5), n=st.integers(2, 5), margin=st.sampled_from([0.0, 1.0, 2.5]))
def test_choices_within_a_group_are_their_formulas(seed: int, N: int, n: int, margin: float) -> None:
    scores = np.random.default_rng(seed).normal(size=(N, n)) * 2
    hinges, shares = [], []
    for row in scores:
        for negative in row[1:]:
            hinges.append(max(0.0, margin - row[0] + negative))
            shares.append(-math.log(slow_softmax([row[0], negative])[0]))
    assert triplet(torch.tensor(scores), margin).item() == pytest.approx(np.mean(hinges), rel=1e-9, abs=1e-12)
    assert pairwise(torch.tensor(scores)).item() == pytest.approx(np.mean(shares), rel=1e-9)


def test_consistency_is_half_the_divergence_both_ways() -> None:
    rng = np.random.default_rng(2)
    one, other = rng.normal(size=(4, 3)), rng.normal(size=(4, 3))
    expected = 0.0
    for a, b in zip(one.tolist(), other.tolist(), strict=True):
        p, q = slow_softmax(a), slow_softmax(b)
        expected += 0.5 * sum(x * math.log(x / y) + y * math.log(y / x) for x, y in zip(p, q, strict=True))
    assert consistent(torch.tensor(one), torch.tensor(other)).item() == pytest.approx(expected, rel=1e-9)
