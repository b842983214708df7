"""GLUE's measures against scikit-learn and SciPy."""

import numpy as np
import pytest
from scipy import stats
from sklearn.metrics import accuracy_score, f1_score, matthews_corrcoef

from stages.understanding.scores import score


@pytest.mark.parametrize("seed", range(10))
def test_as_other_libraries_have_it(seed: int) -> None:
    random = np.random.default_rng(seed)
    true, predicted = random.integers(0, 2, 40), random.integers(0, 2, 40)
    assert score("matthews", predicted, true) == pytest.approx(matthews_corrcoef(true, predicted))
    assert score("f1", predicted, true) == pytest.approx(f1_score(true, predicted))
    assert score("accuracy", predicted, true) == accuracy_score(true, predicted)
    values = np.round(random.random(40).astype(np.float32), 1)
    assert score("pearson", values, true) == pytest.approx(np.corrcoef(values, true)[0, 1], abs=1e-6)
    ranks = stats.rankdata(values), stats.rankdata(true)
    assert score("spearman", values, true) == pytest.approx(np.corrcoef(*ranks)[0, 1])


def test_what_is_not_defined_is_0() -> None:
    constant, true = np.ones(4, dtype=np.int64), np.array([0, 1, 1, 0])
    assert [score(name, constant, true) for name in ("matthews", "pearson", "spearman")] == [0, 0, 0]
    assert score("f1", constant * 0, constant * 0) == 0
