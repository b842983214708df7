"""Grouping keys, against numpy.unique."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from stages.counting.groups import Groups, merge

small = st.integers(0, 40)  # agrees in all leading bits: the indirect sort
large = st.integers(0, 2**64 - 1)
lists = st.lists(small | large | st.sampled_from([2**63, 2**63 + 1, 2**64 - 1]), max_size=60)


@settings(max_examples=200, deadline=None)
@given(lists)
def test_groups_are_those_of_unique(keys: list[int]) -> None:
    array = np.array(keys, dtype=np.uint64)
    groups = Groups(array, 0)
    unique, inverse, counts = np.unique(array, return_inverse=True, return_counts=True)
    assert groups.keys.tolist() == unique.tolist()
    assert groups.counts.tolist() == counts.tolist()
    assert groups.spread(np.arange(len(unique))).tolist() == inverse.tolist()


@given(st.lists(st.integers(0, 2**55 - 1), max_size=30))
def test_shared_leading_bits_do_not_matter(keys: list[int]) -> None:
    array = np.array(keys, dtype=np.uint64) | np.uint64(0b101 << 61)
    assert Groups(array, 3).keys.tolist() == Groups(array, 0).keys.tolist() == sorted(set(array.tolist()))


@given(lists, lists)
def test_merged_counts_are_those_of_all_keys_together(first: list[int], second: list[int]) -> None:
    one, other = (Groups(np.array(keys, dtype=np.uint64), 0) for keys in (first, second))
    keys, counts = merge(one.keys, one.counts, other.keys, other.counts)
    unique, times = np.unique(np.array(first + second, dtype=np.uint64), return_counts=True)
    assert keys.tolist() == unique.tolist()
    assert counts.tolist() == times.tolist()
