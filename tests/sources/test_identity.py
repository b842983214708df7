"""Hashes decide what is in which split, so they must never change."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from stages.artifacts.identity import digest, normalised
from stages.sources.lots import lot


def test_hashes_are_the_same_everywhere_and_for_ever():
    assert digest("") == 13020603013274838756
    assert digest("numpy.linalg.norm") == 4665756185794541116
    assert lot("numpy.linalg.norm", "split") == 0.2691387400208702
    assert lot("numpy.linalg.norm", "keep") == 0.640169081748684


def test_lots_are_uniform_and_independent_of_each_other():
    one, other = (np.array([lot(f"name{i}", purpose) for i in range(4000)]) for purpose in ("split", "keep"))
    for lots in (one, other):
        assert 0 <= lots.min() <= lots.max() < 1
        assert np.abs(np.histogram(lots, 10, (0, 1))[0] - 400).max() < 80
    assert abs(np.corrcoef(one, other)[0, 1]) < 0.05


def test_normalised_texts_read_the_same():
    assert normalised("  What IS\n(are) U.S. taxes?") == normalised("what is are u s taxes") == "what is are u s taxes"
    assert normalised("STRASSE") == normalised("straße")
    assert normalised("?!") == ""


@given(st.text())
def test_normalising_twice_changes_nothing(text):
    assert normalised(normalised(text)) == normalised(text)
