"""The pseudo chapter: queries that stand in their passages, the same for the same seed."""

from pathlib import Path
from typing import Any

import pytest

from stages.artifacts.refusal import Refusal
from stages.artifacts.tables import Passages, Qrels, Queries
from stages.pseudo import pseudo

TEXT = "One two three four five. Too short! Is this a question of some words?\n\nA heading\n\nsix seven e.g. ten ten."


def write(path: Path, titles: list[str], texts: list[str]) -> Path:
    names = [f"p{number}" for number in range(len(titles))]
    columns = {"passage_id": names, "document_id": names, "position": [0] * len(names), "title": titles, "text": texts}
    Passages.write(path, columns)
    return path


def made(passages: Path, folder: Path, **options: Any) -> list[tuple[str, str]]:
    """(passage_id, query) of every query, which is judged on that passage and no other."""
    pseudo(passages, folder / "queries", folder / "qrels", **options)
    queries, qrels = Queries.read(folder / "queries").to_pylist(), Qrels.read(folder / "qrels").to_pylist()
    assert [row["query_id"] for row in queries] == [row["query_id"] for row in qrels]
    assert len({row["query_id"] for row in queries}) == len(queries)
    assert {row["split"] for row in queries} == {"train"}
    assert {row["relevance"] for row in qrels} == {1}
    return [(judged["passage_id"], asked["text"]) for asked, judged in zip(queries, qrels, strict=True)]


def test_titles_and_sentences_of_their_passages(world: Any, tmp_path: Path) -> None:
    passages = {row["passage_id"]: row for row in Passages.read(world.passages).to_pylist()}
    found = made(world.passages, tmp_path)
    titles = [(name, row["title"]) for name, row in passages.items()]
    assert [pair for pair in found if pair in titles] == titles
    for name, text in found:
        row = passages[name]
        assert text == row["title"] or (text in row["text"] and 5 <= len(text.split()) <= 30)
    long = sum(len(row["text"].split()) > 30 for row in passages.values())  # one sentence each in this world
    assert len(found) == 2 * len(passages) - long


def test_sentences_end_at_full_stops_and_paragraphs_and_are_of_some_length(tmp_path: Path) -> None:
    passages = write(tmp_path / "passages", [""] * 200, [TEXT] * 200)
    found = {text for _, text in made(passages, tmp_path)}
    assert found == {"One two three four five.", "Is this a question of some words?"}
    found = {text for _, text in made(passages, tmp_path, shortest=2, longest=4)}
    assert found == {"Too short!", "A heading", "six seven e.g.", "ten ten."}


def test_a_share_is_drawn_the_same_for_the_same_seed(world: Any, tmp_path: Path) -> None:
    one, again, other = (made(world.passages, tmp_path, count=7, seed=seed) for seed in (1, 1, 2))
    assert one == again != other
    assert len({name for name, _ in one}) == 7


def test_what_gives_no_query_is_refused(tmp_path: Path) -> None:
    passages = write(tmp_path / "passages", ["", " "], ["Short.", "Shorter."])
    with pytest.raises(Refusal, match=r"passages: no title, and no sentence of 5 to 30 words$"):
        pseudo(passages, tmp_path / "queries", tmp_path / "qrels")
    with pytest.raises(Refusal, match=r"--shortest 9: above --longest 8$"):
        pseudo(passages, tmp_path / "queries", tmp_path / "qrels", shortest=9, longest=8)
    assert not (tmp_path / "queries").exists()
    assert not (tmp_path / "qrels").exists()
