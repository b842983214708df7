"""BM25 by Lucene against the formula, and against everything a query can hold."""

import math
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from stages.ranking.java import OLDEST, java_home, java_version
from stages.ranking.lexical import Searcher, index

Find = Callable[..., tuple[list[str], list[float]]]

# words that Porter's stemmer and the stop list leave alone
TEXTS = {
    "p1": "cat dog",
    "p2": "cat cat cat fish bird dog",
    "p3": "bird fish",
    "p4": "dog " * 30,
    "p5": "fish",
    "blank": " \n\t",
}


@pytest.fixture(scope="module")
def find(tmp_path_factory: pytest.TempPathFactory) -> Find:
    folder = tmp_path_factory.mktemp("index")
    index([(list(TEXTS), list(TEXTS.values()))], folder)
    return _finder(folder)


def _finder(folder: Path) -> Find:
    def find(query: str, depth: int = 100, k1: float = 0.9, b: float = 0.4) -> tuple[list[str], list[float]]:
        with ThreadPoolExecutor(1) as pool, Searcher(folder, k1, b) as searcher:
            names, scores = next(searcher.rank([query], depth, pool))
        assert scores.dtype == np.float32
        return names, scores.tolist()

    return find


def formula(query: str, k1: float, b: float) -> dict[str, float]:
    """BM25 as Lucene defines it, lengths exact (Lucene rounds none below 40)."""
    texts = {name: text.split() for name, text in TEXTS.items() if text.strip()}
    mean = sum(map(len, texts.values())) / len(texts)
    scores = {}
    for name, words in texts.items():
        score = 0.0
        for word in query.split():
            n, f = sum(word in other for other in texts.values()), words.count(word)
            idf = math.log(1 + (len(texts) - n + 0.5) / (n + 0.5))
            score += idf * f / (f + k1 * (1 - b + b * len(words) / mean)) if f else 0.0
        if score:
            scores[name] = score
    return scores


@pytest.mark.parametrize("query", ["cat", "dog fish", "dog dog cat", "bird cat dog fish unknown"])
@pytest.mark.parametrize(("k1", "b"), [(0.9, 0.4), (1.2, 0.75), (0.0, 0.0), (2.0, 1.0)])
def test_scores_are_the_formula(find: Find, query: str, k1: float, b: float) -> None:
    names, scores = find(query, k1=k1, b=b)
    expected = formula(query, k1, b)
    assert set(names) == set(expected)
    assert scores == pytest.approx([expected[name] for name in names], rel=1e-5)
    assert scores == sorted(scores, reverse=True)


def test_english_is_stemmed(find: Find) -> None:
    assert find("the dogs and a cat's") == find("dog cat")


@pytest.mark.parametrize("query", ["", " \n", "\0", '?!+-&&||(){}[]^"~*:\\/', "the of", "unknown", "\U0001f600"])
def test_nothing_to_find(find: Find, query: str) -> None:
    assert find(query) == ([], [])


@pytest.mark.parametrize(
    "query", ["cat AND OR NOT (", "\0cat\0", 'contents:"cat', "cat\U0001f600 \ufffd\uffff", "cat* \u202e"]
)
def test_hostile_characters_are_only_characters(find: Find, query: str) -> None:
    assert set(find(query)[0]) >= {"p1", "p2"}


def test_long_queries(find: Find) -> None:
    many = " ".join(f"word{i}" for i in range(5000))
    assert find(f"{many} cat") == find("cat")
    scores = find("cat " * 1024)[1]
    assert scores == pytest.approx([1024 * score for score in find("cat")[1]], rel=1e-5)


def test_ties_at_the_cut_go_by_id(tmp_path: Path) -> None:
    names = [f"{i * 7919 % 1000:03}" for i in range(1000)]
    half = [(names[:500], ["same words"] * 500), (names[500:], ["same words"] * 500)]
    index(half, tmp_path)
    assert _finder(tmp_path)("words", 10)[0] == [f"{i:03}" for i in range(10)]


def test_ids_of_any_character(tmp_path: Path) -> None:
    names = sorted(["a\0b", "\u00e9", "\U0001f600", "\uffff", "x y\tz\n", '"', "\\", "x" * 300, "日本"])
    index([(names, ["cat"] * len(names))], tmp_path)
    assert _finder(tmp_path)("cat")[0] == names


def test_java_is_new_enough(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    old, new = tmp_path / "old", tmp_path / "new"
    for home, version in ((old, "1.8.0_392"), (new, "21.0.2")):
        home.mkdir()
        (home / "release").write_text(f'IMPLEMENTOR="x"\nJAVA_VERSION="{version}"\n')
    assert (java_version(old), java_version(new), java_version(tmp_path)) == (8, 21, 0)
    monkeypatch.setenv("PATH", "")
    monkeypatch.setenv("JAVA_HOME", str(new))
    assert java_home() == new
    monkeypatch.setenv("JAVA_HOME", str(old))
    assert java_version(java_home()) >= OLDEST
