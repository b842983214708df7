"""Containment of answers against a slow definition in DPR's words, and on what people write."""

import unicodedata
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stages.artifacts.answers import holds
from stages.artifacts.refusal import Refusal
from stages.artifacts.tables import Answers, Passages
from stages.measuring.answers import Wanted, answered, read_answers

TEXT = st.text(alphabet=st.sampled_from("aAbB é\u0301ß1.,'- \u00a0\u200b\n中"), max_size=14)


def slow(text: str, answer: str) -> bool:
    """Token lists compared at every place, tokens told apart by their categories, character by character."""

    def tokens(string: str) -> list[str]:
        found, word = [], ""
        for character in unicodedata.normalize("NFD", string):
            kind = unicodedata.category(character)[0]
            if kind in "LNM":
                word += character
                continue
            found += [word] if word else []
            word = ""
            found += [] if kind in "ZC" else [character]
        return [token.lower() for token in [*found, word] if token]

    inside, wanted = tokens(text), tokens(answer)
    places = range(len(inside) - len(wanted) + 1)
    return bool(wanted) and any(inside[place : place + len(wanted)] == wanted for place in places)


@settings(max_examples=300, deadline=None)
@given(TEXT, st.lists(TEXT, max_size=3))
def test_containment_is_that_of_token_lists(text: str, answers: list[str]) -> None:
    assert holds(text, answers) == any(slow(text, answer) for answer in answers)


@pytest.mark.parametrize(
    ("text", "answers", "held"),
    [
        ("Wilhelm Conrad Röntgen, of Germany", ["wilhelm conrad Ro\u0308ntgen"], True),
        ("Wilhelm Conrad Röntgen", ["Rontgen"], False),  # an accent is part of a word
        ("on May 18, 2018.", ["1918", "May 18 , 2018"], True),
        ("on May 18 2018", ["May 18, 2018"], False),  # the comma is a token
        ("thirteen", ["one", "teen"], False),
        ("in 1972UTC", ["1972"], False),
        ("Destiny's Child", ["Destiny 's Child"], True),
        ("text", ["", " "], False),
        ("", ["text"], False),
    ],
)
def test_what_people_write(text: str, answers: list[str], held: bool) -> None:
    assert holds(text, answers) == held


def test_tables(tmp_path: Path) -> None:
    Answers.write(tmp_path / "a", {"query_id": ["2", "1", "2", "4"], "answer": ["two", "One", "zwei", "four"]})
    assert read_answers(tmp_path / "a", ["1", "2", "3"]) == {"1": ["One"], "2": ["two", "zwei"]}
    rows = [("p", "two ones"), ("q", "one and Zwei"), ("r", "two")]
    columns = {"passage_id": [name for name, _ in rows], "text": [text for _, text in rows]}
    columns |= {"document_id": columns["passage_id"], "position": [0] * 3, "title": ["one"] * 3}
    Passages.write(tmp_path / "p", columns)
    wanted = Wanted({"1": ["One"], "2": ["two", "zwei"]}, {"p": ["1", "2"], "q": ["1", "2"]})
    assert answered(tmp_path / "p", wanted) == {"1": {"q": 1}, "2": {"p": 1, "q": 1}}
    with pytest.raises(Refusal, match=r"p: passage x of the run is not there$"):
        answered(tmp_path / "p", Wanted({"1": ["one"]}, {"x": ["1"], "y": ["1"]}))
