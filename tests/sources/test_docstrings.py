"""The documentation of installed packages, on one that the test writes and on those that are installed."""

import re
import sys
from collections import Counter
from itertools import groupby

import pytest

from stages.artifacts.identity import WORDS, normalised
from stages.artifacts.refusal import Refusal
from stages.sources import docstrings

PACKAGE = {
    "__init__.py": '''"""Tools for knots (:mod:`knotted`)
===================================

.. currentmodule:: knotted

A knot is a closed curve in space; this package ties, unties and compares them all.
"""
raise RuntimeError("imported")
''',
    "ties.py": '''"""Tie knots. Everything about tying is gathered here, from simple loops to complicated ones."""

def loop(size):
    """Tie a loop of a given size.

    A loop is the simplest of all knots. TIE A *loop* of a
    given size! Nothing else is needed.

    Parameters
    ----------
    size : int
        How big it is.
    %(extra_notes)s
    """

def _hidden():
    """Tie it in secret. Nobody should ever read how this one is tied, ever."""

class Rope:
    """A rope to tie knots with. It is long, and it bends well enough for most of the usual knots."""

    def pull(self):
        """Pull the rope until it is tight. Pulling harder than the rope can bear will tear it apart at once."""
        def inner():
            """Never read this inner one. It is a detail, and no page of any book should have it."""

    def _fray(self):
        """Fray the rope. What is private stays private, however long its docstring may be."""

    @property
    def length(self):
        """The length."""

    @length.setter
    def length(self, value):
        """Set how long the rope is now. A second definition of a name is no second entry at all."""

try:
    import fast
except ImportError:
    def slow():
        """Tie slowly but surely. Where nothing faster is installed, this is what everybody falls back to."""

def again():
    """Pull the rope until it is TIGHT! Here it is another rope that one pulls, and with another hand."""

def copied():
    """Tie slowly but surely. Where nothing faster is installed, this is what everybody falls back to."""

def short():
    """Untie it. It is short."""

def tiny():
    """Two words. But a great many words follow them to describe what is meant by so few."""
''',
    "_private.py": '"""Secret ways to tie. These must not be read, for the whole module is a private one."""',
    "tests/test_ties.py": '"""Test the ties well. These must not be read, for the whole module tests something."""',
    "deep/__init__.py": "",
    "deep/sea.py": '"""Knots of the deep sea. Sailors have always known more of them than anybody else on land."""',
}


@pytest.fixture
def knotted(tmp_path, monkeypatch):
    for name, text in PACKAGE.items():
        path = tmp_path / "knotted" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    return docstrings.read("knotted", 110)


def test_names_and_pages_in_order(knotted):
    entries = [(entry.page, entry.name) for entry in knotted.entries]
    assert entries == [
        ("knotted", "knotted"),
        ("knotted.deep.sea", "knotted.deep.sea"),
        ("knotted.ties", "knotted.ties"),
        ("knotted.ties", "knotted.ties.loop"),
        ("knotted.ties", "knotted.ties.slow"),
        ("knotted.ties", "knotted.ties.again"),
        ("knotted.ties", "knotted.ties.tiny"),
        ("knotted.ties.Rope", "knotted.ties.Rope"),
        ("knotted.ties.Rope", "knotted.ties.Rope.pull"),
    ]
    assert "knotted" not in sys.modules


def test_queries_are_unique_and_neither_too_short_nor_hidden(knotted):
    queries = {query.query_id: query.text for query in knotted.queries()}
    assert queries == {
        "knotted": "Tools for knots (:mod:`knotted`)",
        "knotted.deep.sea": "Knots of the deep sea.",
        "knotted.ties.loop": "Tie a loop of a given size.",
        "knotted.ties.slow": "Tie slowly but surely.",
        "knotted.ties.Rope": "A rope to tie knots with.",
    }


def test_the_passage_is_the_rest_without_the_sentence_and_the_markup(knotted):
    texts = {passage.passage_id: passage.text for passage in knotted.passages()}
    loop = "A loop is the simplest of all knots. Nothing else is needed. Parameters size : int How big it is."
    assert " ".join(texts["knotted.ties.loop#0"].split()) == loop
    assert texts["knotted#0"].startswith(".. currentmodule:: knotted\n\nA knot is a closed curve")


def test_every_passage_of_a_docstring_is_relevant_and_its_page_is_its_title(knotted):
    long = docstrings.Docstrings(["knotted"], 9)
    passages = {passage.passage_id: passage for passage in long.passages()}
    relevant = Counter(line.query_id for line in long.judgements())
    assert relevant["knotted.ties.loop"] == 2
    for line in long.judgements():
        assert passages[line.passage_id].passage_id.rpartition("#")[0] == line.query_id
    assert all(passage.title == passage.document_id for passage in passages.values())


@pytest.mark.parametrize(
    ("rest", "complaint"),
    [
        ("no_such_package_here", "source docstrings: package no_such_package_here is not installed"),
        ("numpy.linalg", "source docstrings: package numpy.linalg is not installed"),
        ("", "source docstrings: package  is not installed"),
        ("knotted,knotted", "source docstrings: package knotted is named 2 times"),
        ("math", "source docstrings: package math has no Python source"),
        ("sys", "source docstrings: package sys has no Python source"),
    ],
)
def test_what_cannot_be_read_is_refused(rest, complaint):
    with pytest.raises(Refusal, match=re.escape(complaint)):
        docstrings.read(rest, 110)


def test_a_file_that_is_not_python_is_refused(tmp_path, monkeypatch):
    (tmp_path / "brokenpackage").mkdir()
    path = tmp_path / "brokenpackage" / "__init__.py"
    path.write_text("def :", encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(Refusal, match=re.escape(f"{path}: cannot be read as Python: ")):
        list(docstrings.read("brokenpackage", 110).passages())


def test_a_module_of_one_file_is_a_package_too(tmp_path, monkeypatch):
    (tmp_path / "lonelymodule.py").write_text('"""One file only here. It is read like a package, nothing amiss."""')
    monkeypatch.syspath_prepend(tmp_path)
    assert [entry.name for entry in docstrings.read("lonelymodule", 110).entries] == ["lonelymodule"]


def test_a_name_never_changes_its_split():
    names = ["numpy.linalg.norm", "matplotlib.pyplot.plot", "scipy.signal", "networkx.algorithms.dag.topological_sort"]
    assert [docstrings.split_of(name) for name in names] == ["train", "train", "dev", "test"]
    shares = Counter(docstrings.split_of(f"package.name{i}") for i in range(5000))
    assert shares == pytest.approx({"train": 3250, "dev": 500, "test": 1250}, abs=100)


@pytest.fixture(scope="module")
def networkx():
    return docstrings.read("networkx", 110)


def test_no_query_is_left_in_its_passages_or_their_title(networkx):
    passages = {passage.passage_id: passage for passage in networkx.passages()}
    queries = {query.query_id: f" {normalised(query.text)} " for query in networkx.queries()}
    assert len(queries) > 500
    for line in networkx.judgements():
        passage = passages[line.passage_id]
        assert queries[line.query_id] not in f" {normalised(passage.text)} "
        assert queries[line.query_id] not in f" {normalised(passage.title)} "


def test_nothing_private_repeated_or_out_of_order_is_left(networkx):
    passages = list(networkx.passages())
    assert len({passage.passage_id for passage in passages}) == len(passages)
    assert len({normalised(passage.text) for passage in passages}) == len(passages)
    assert not [passage for passage in passages if re.search(r"(^|\.)_|\.tests\b", passage.passage_id)]
    pages = [(page, [passage.position for passage in run]) for page, run in groupby(passages, lambda p: p.document_id)]
    assert len({page for page, _ in pages}) == len(pages)
    assert all(positions == list(range(len(positions))) for _, positions in pages)
    queries = [normalised(query.text) for query in networkx.queries()]
    assert len(set(queries)) == len(queries)
    assert all(3 <= len(WORDS.findall(query)) <= 40 for query in queries)


def test_no_word_but_the_querys_is_lost(networkx):
    """The docstring's words are the query's and the passages', unless the query recurs or a passage repeats another."""
    entries = {entry.name: entry for entry in networkx.entries}
    said_once = 0
    for docstring in networkx.docstrings():
        whole = docstrings.readable(docstring.text).split()
        entry = entries.get(docstring.name)
        if entry:
            words = [*entry.query.split(), *" ".join(entry.passages).split()]
            assert whole[: len(entry.query.split())] == entry.query.split()
            assert len(words) < len(whole) or words == whole
            said_once += words == whole
    assert said_once > 0.9 * len(entries)
