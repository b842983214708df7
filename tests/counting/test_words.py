"""Word ids, against a dict of tuples."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from stages.counting.words import Lexicon

batches = st.lists(st.lists(st.lists(st.integers(0, 3), min_size=1, max_size=5), max_size=20), min_size=1, max_size=4)


def numbered(lexicon: Lexicon, words: list[list[int]]) -> list[int]:
    pieces = np.array([piece for word in words for piece in word], dtype=np.int32)
    starts = np.array([k == 0 for word in words for k in range(len(word))], dtype=bool)
    return lexicon.number(pieces, starts).tolist()


@settings(max_examples=100, deadline=None)
@given(batches)
def test_ids_are_those_of_a_dict_by_first_occurrence(batches: list[list[list[int]]]) -> None:
    lexicon, known = Lexicon(), {}
    for words in batches:
        assert numbered(lexicon, words) == [known.setdefault(tuple(word), len(known)) for word in words]
        assert lexicon.size == len(known)


def test_a_prefix_becomes_a_word_later() -> None:
    lexicon = Lexicon()
    assert numbered(lexicon, [[7, 8, 9]]) == [0]
    assert numbered(lexicon, [[7, 8], [7], [7, 8, 9], [8, 9]]) == [1, 2, 0, 3]


def test_piece_ids_up_to_31_bits() -> None:
    top = 2**31 - 1
    assert numbered(Lexicon(), [[top, top], [top], [top, top], [0, top], [0]]) == [0, 1, 0, 2, 3]
