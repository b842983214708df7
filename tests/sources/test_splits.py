"""Nothing that is held out is trained on."""

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stages.artifacts.identity import normalised
from stages.artifacts.refusal import Refusal
from stages.artifacts.tables import SPLITS
from stages.sources.collection import Judgement, Query
from stages.sources.splits import carve, read_labels


class Asked:
    """A source of queries and judgements alone."""

    def __init__(self, texts, lines):
        self.texts, self.lines = texts, lines

    def queries(self):
        for row, (name, text) in enumerate(self.texts, start=1):
            yield Query(name, text, "queries", row)

    def judgements(self):
        for row, (split, query, passage, relevance) in enumerate(self.lines, start=1):
            yield Judgement(split, query, passage, relevance, split, row)


ASKED = st.builds(
    Asked,
    st.just([(f"q{i}", text) for i, text in enumerate(["one", "One!", "two words", "two  WORDS", "three", "four"])]),
    st.lists(
        st.tuples(st.sampled_from(SPLITS), st.integers(0, 5).map("q{}".format), st.sampled_from("abc"), st.just(1)),
        max_size=25,
    ),
)


@given(ASKED)
@settings(deadline=None)
def test_a_text_is_in_one_split_and_that_is_the_one_held_out_longest(asked):
    labels = read_labels(asked, dev_fraction=0.5, partial=False)
    named = {(normalised(dict(asked.texts)[query]), split) for split, query, *_ in asked.lines}
    for name, split in labels.splits.items():
        text = normalised(labels.queries[name].text)
        of_text = {labels.splits[other] for other in labels.splits if normalised(labels.queries[other].text) == text}
        assert of_text == {split}
        if any(split == "dev" for _, split in named):
            assert split == max((s for t, s in named if t == text), key=SPLITS.index)
    assert {line.query_id for line in labels.judgements} == set(labels.splits)


def test_shared_queries_are_counted_by_id_and_by_text():
    texts = [("a", "same"), ("b", "Same!"), ("c", "other"), ("d", "own")]
    lines = [("train", "a", "p"), ("test", "b", "p"), ("train", "c", "p"), ("dev", "c", "r"), ("train", "d", "p")]
    labels = read_labels(Asked(texts, [(*line, 1) for line in lines]), 0.1, False)
    assert labels.shared == {"train_dev": 1, "train_test": 1, "dev_test": 0}
    assert labels.splits == {"b": "test", "c": "dev", "d": "train"}
    assert [(line.query_id, line.passage_id) for line in labels.judgements] == [("b", "p"), ("c", "r"), ("d", "p")]


def test_dev_is_carved_by_text_only_where_there_is_none():
    queries = {f"q{i}": Query(f"q{i}", f"Text {i // 2}{'!' * (i % 2)}", "", i) for i in range(4000)}
    splits = carve(dict.fromkeys(queries, "train"), queries, 0.1)
    assert all(splits[f"q{i}"] == splits[f"q{i + 1}"] for i in range(0, 4000, 2))
    assert sum(split == "dev" for split in splits.values()) == pytest.approx(400, abs=60)
    assert carve({"q0": "test"}, queries, 1.0) == {"q0": "test"}
    more = carve(dict.fromkeys(queries, "train"), queries, 0.2)
    assert all(more[name] == "dev" for name, split in splits.items() if split == "dev")
    asked = Asked([("a", "x"), ("b", "y")], [("train", "a", "p", 1), ("dev", "b", "p", 1)])
    assert read_labels(asked, 1.0, False).splits == {"a": "train", "b": "dev"}


def test_judged_not_relevant_is_kept_and_repeats_are_said_once():
    lines = [("train", "a", "p", 0), ("train", "a", "r", 2), ("train", "a", "p", 0)]
    labels = read_labels(Asked([("a", "x"), ("b", "y")], lines), 0.0, False)
    assert [(line.passage_id, line.relevance) for line in labels.judgements] == [("p", 0), ("r", 2)]
    assert labels.left_out == {
        "judgements_of_unknown_queries": 0,
        "judgements_repeated": 1,
        "queries_without_judgements": 1,
    }


@pytest.mark.parametrize(
    ("texts", "lines", "complaint"),
    [
        ([("a", "x"), ("a", "x")], [], "queries: row 2: query id a was already used in queries row 1"),
        ([("a", " ")], [], "queries: row 1: column text is empty"),
        ([("", "x")], [], "queries: row 1: query id is empty"),
        ([("a b", "x")], [], "queries: row 1: query id 'a b' holds white space"),
        ([("a", "x")], [("test", "b", "p", 1)], "test: row 1: query id b is unknown"),
        (
            [("a", "x")],
            [("test", "a", "p", 1), ("test", "a", "p", 2)],
            "test: row 2: column relevance is 2, was 1 in row 1 for the same pair",
        ),
    ],
)
def test_contradictions_are_refused(texts, lines, complaint):
    with pytest.raises(Refusal, match=f"^{re.escape(complaint)}$"):
        read_labels(Asked(texts, lines), 0.1, partial=False)


def test_an_excerpt_leaves_unknown_queries_out():
    labels = read_labels(Asked([("a", "x")], [("test", "b", "p", 1), ("test", "a", "p", 1)]), 0.1, partial=True)
    assert labels.left_out["judgements_of_unknown_queries"] == 1
    assert labels.splits == {"a": "test"}
