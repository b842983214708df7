"""MIND's measures against scikit-learn and a plain reading of MIND's own evaluation."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import ndcg_score, roc_auc_score

from stages.measuring.impressions import impression


@settings(max_examples=100, deadline=None)
@given(st.lists(st.tuples(st.integers(-3, 3), st.booleans()), min_size=2, max_size=30))
def test_auc_is_scikit_learns(rows: list[tuple[int, bool]]) -> None:
    scores, clicked = np.array([row[0] for row in rows], dtype=np.float32), np.array([row[1] for row in rows])
    if clicked.any() and not clicked.all():
        assert impression(scores, clicked)[0] == pytest.approx(roc_auc_score(clicked, scores))


@pytest.mark.parametrize("seed", range(20))
def test_ranks_without_ties(seed: int) -> None:
    random = np.random.default_rng(seed)
    count = int(random.integers(2, 40))
    scores, clicked = random.permutation(count).astype(np.float32), random.random(count) < 0.3
    clicked[random.permutation(count)[:2]] = True, False
    _, mrr, five, ten = impression(scores, clicked)
    by_rank = [bool(clicked[i]) for i in sorted(range(count), key=lambda i: -scores[i])]
    assert mrr == pytest.approx(sum(1 / rank for rank, hit in enumerate(by_rank, 1) if hit) / sum(by_rank))
    for cutoff, found in ((5, five), (10, ten)):
        assert found == pytest.approx(ndcg_score([clicked], [scores], k=cutoff))
