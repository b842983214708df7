"""Cutting loses nothing: the words of the passages are the words of the text."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stages.sources import sentences

WORD = st.sampled_from(["a", "One", "e.g.", "stop.", "Really?", "(x", 'y.")', ">>>", "naïve", "数", "U.S.", "3.5"])
GAP = st.sampled_from([" ", " ", " ", "  ", "\n", "\n    ", "\n\n", "\n \t\n  ", "\t", "\u2028"])
TEXT = st.lists(st.tuples(WORD, GAP), max_size=120).map(lambda pairs: "".join(word + gap for word, gap in pairs))


@given(TEXT, st.integers(1, 30))
@settings(deadline=None, max_examples=200)
def test_no_word_is_lost_or_split_and_lengths_are_bounded(text, words):
    cut = sentences.passages(text, words)
    assert [word for passage in cut for word in passage.split()] == text.split()
    assert all(0 < len(passage.split()) <= 1.5 * words for passage in cut)
    assert all(passage == passage.strip() and passage in text for passage in cut)


@given(TEXT)
@settings(deadline=None, max_examples=200)
def test_the_first_sentence_is_a_prefix_within_the_first_paragraph(text):
    end = sentences.first_sentence(text.strip())
    first = text.strip()[:end]
    assert bool(first) == bool(text.strip())
    assert "\n\n" not in first
    assert first == first.strip()


def slow_best(units, words):
    """The least cost of all cuts, by trying every one."""
    if not units:
        return 0.0
    costs = []
    for size in range(1, len(units) + 1):
        length = sum(unit.words for unit in units[:size])
        if length <= 1.5 * words:
            price = units[size].price if size < len(units) else 0.0
            costs.append((length / words - 1) ** 2 + price + slow_best(units[size:], words))
    return min(costs)


@given(st.lists(st.tuples(WORD, GAP), max_size=24).map(lambda pairs: "".join(w + g for w, g in pairs)))
@settings(deadline=None, max_examples=100)
def test_the_cut_is_the_best_of_all(text):
    words = 6
    units = sentences.units_of(text, words)[:10]
    text = text[: units[-1].end] if units else ""
    cut = sentences.passages(text, words)
    ends = [0]
    for passage in cut:
        ends.append(ends[-1] + len(passage.split()))
    before, prices = 0, {}
    for unit in units:
        prices[before] = unit.price
        before += unit.words
    cost = sum((len(passage.split()) / words - 1) ** 2 for passage in cut) + sum(prices[end] for end in ends[1:-1])
    assert cost == pytest.approx(slow_best(units, words))


@pytest.mark.parametrize(
    ("text", "first"),
    [
        ("Compute the mean. And more.", "Compute the mean."),
        ("Compute e.g. the mean. More.", "Compute e.g. the mean."),
        ("Compute the mean, cf. Knuth (3.2) for it! More.", "Compute the mean, cf. Knuth (3.2) for it!"),
        ("Is version 3.5 enough? Yes.", "Is version 3.5 enough?"),
        ('It is "so." More.', 'It is "so."'),
        ("No stop here\n\nNext paragraph.", "No stop here"),
        ("Runs over\ntwo lines. More.", "Runs over\ntwo lines."),
        ("Ends in numpy.linalg and goes on", "Ends in numpy.linalg and goes on"),
        ("Named after J. Doe and A. Roe. More.", "Named after J. Doe and A. Roe."),
        ("", ""),
    ],
)
def test_where_a_first_sentence_ends(text, first):
    assert text[: sentences.first_sentence(text)] == first


def test_a_cut_prefers_paragraphs_to_sentences_and_lines():
    text = "one two three four. Five six\n\nseven eight. Nine ten\neleven twelve"
    assert sentences.passages(text, 6) == ["one two three four. Five six", "seven eight. Nine ten\neleven twelve"]


def test_a_line_longer_than_a_passage_is_cut_between_words():
    assert sentences.passages("a b c d e f g", 3) == ["a b c", "d e f g"]
