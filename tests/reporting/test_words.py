"""Marked words: nothing of the text is lost, nothing of it becomes markup."""

from html import unescape

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stages.reporting.texts import LONGEST, alike, marked

TEXT = st.text(st.characters(codec="utf-8"), max_size=80)


@settings(deadline=None, max_examples=150)
@given(TEXT, TEXT)
def test_text_survives_and_only_marks_are_markup(text: str, query: str) -> None:
    found = str(marked(text, query))
    bare = found.replace("<mark>", "").replace("</mark>", "")
    assert unescape(bare) == text
    assert "<" not in bare
    assert found.count("<mark>") == found.count("</mark>")


def test_forms_of_a_word_are_marked_and_common_words_are_not() -> None:
    found = marked("The convex hulls of the points.", "convex hull of the point", frozenset({"the", "of"}))
    assert found == "The <mark>convex</mark> <mark>hulls</mark> of the <mark>points</mark>."


def test_a_long_text_is_cut_between_words() -> None:
    found = marked("word " * 400, "query")
    assert len(found) <= LONGEST + 2
    assert found.endswith("word …")


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("array", "arrays", True),
        ("compute", "computed", True),
        ("computing", "computed", False),
        ("set", "sets", False),
        ("set", "set", True),
        ("return", "returning", True),
        ("number", "numpy", False),
    ],
)
def test_alike(one: str, other: str, same: bool) -> None:
    assert alike(one, other) is same
    assert alike(other, one) is same
