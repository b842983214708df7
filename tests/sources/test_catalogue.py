"""The catalogue's datasets, on small ones that are registered here with the library's own classes."""

from typing import NamedTuple

import ir_datasets
import pytest
from ir_datasets.datasets.base import Dataset
from ir_datasets.formats import BaseDocs, BaseQrels, BaseQueries, GenericDoc, GenericQrel, GenericQuery

from stages.artifacts.refusal import Refusal
from stages.sources.ir_datasets import read


class TitledDoc(NamedTuple):
    doc_id: str
    title: str
    body: str

    def default_text(self):
        return f"{self.title} {self.body}"


class TextDoc(NamedTuple):
    doc_id: str
    text: str
    title: str


class Docs(BaseDocs):
    def __init__(self, docs):
        self.docs = docs

    def docs_iter(self):
        return iter(self.docs)

    def docs_count(self):
        return len(self.docs)


class Queries(BaseQueries):
    def __init__(self, *queries):
        self.queries = queries

    def queries_iter(self):
        return (GenericQuery(*query) for query in self.queries)


class Qrels(BaseQrels):
    def __init__(self, *lines):
        self.lines = lines

    def qrels_iter(self):
        return (GenericQrel(*line) for line in self.lines)


class Broken(BaseDocs):
    def docs_iter(self):
        raise OSError("no\nroute")
        yield

    def docs_count(self):
        return None


@pytest.fixture(scope="module", autouse=True)
def registered():
    docs = Docs([TextDoc("a", "text a", "Title A"), TextDoc("b", "text b", None)])
    train = Dataset(docs, Queries(("1", "one"), ("2", "two")), Qrels(("1", "a", 1), ("2", "b", 0)))
    small = Dataset(docs, Queries(("3", "three")), Qrels(("3", "b", 3)))
    large = Dataset(docs, Queries(("4", "four")), Qrels(("4", "b", 3)))
    other = Dataset(Docs([TitledDoc("c", "Title C", "body c")]), Queries(("5", "five")), Qrels(("5", "c", 1)))
    plain = Dataset(Docs([GenericDoc("d", "text d")]), Queries(("6", "six")), Qrels(("6", "d", 1)))
    unheard = Dataset(Broken(), Queries(("6", "six")), Qrels(("6", "d", 200)))
    named = {
        "isthmus-small": Dataset(docs),
        "isthmus-small/train": train,
        "isthmus-small/dev": large,
        "isthmus-small/dev/small": small,
        "isthmus-other": other,
        "isthmus-plain/dev/judged": plain,
        "isthmus-broken": unheard,
        "isthmus-bare": Dataset(docs),
    }
    for name, dataset in named.items():
        ir_datasets.registry.register(name, dataset)
    yield
    for name in named:
        del ir_datasets.registry._registered[name]


def test_a_parent_takes_its_subsets():
    source = read("isthmus-small", 110)
    assert source.count() == 2
    assert [passage[:5] for passage in source.passages()] == [
        ("a", "a", 0, "Title A", "text a"),
        ("b", "b", 0, "", "text b"),
    ]
    assert [(query.query_id, query.text, query.row) for query in source.queries()] == [
        ("1", "one", 1),
        ("2", "two", 2),
        ("3", "three", 1),
    ]
    assert [line[:4] for line in source.judgements()] == [
        ("train", "1", "a", 1),
        ("train", "2", "b", 0),
        ("dev", "3", "b", 3),
    ]


@pytest.mark.parametrize(
    ("name", "split", "text"),
    [
        ("isthmus-small/train", "train", "text a"),
        ("isthmus-other", "test", "Title C body c"),
        ("isthmus-plain/dev/judged", "dev", "text d"),
    ],
)
def test_one_dataset_names_its_split(name, split, text):
    source = read(name, 110)
    assert {line.split for line in source.judgements()} == {split}
    first = next(source.passages())
    assert (first.text, first.title) == (text, "Title A" if text == "text a" else "")


def test_what_the_catalogue_does_not_have_is_refused():
    with pytest.raises(Refusal, match=r"^source ir_datasets: there is no dataset isthmus-nothing$"):
        read("isthmus-nothing", 110)
    with pytest.raises(Refusal, match=r"^source ir_datasets: isthmus-bare has no queries for test$"):
        read("isthmus-bare", 110)
    broken = read("isthmus-broken", 110)
    with pytest.raises(Refusal, match=r"^source ir_datasets: isthmus-broken cannot be had: no route$"):
        list(broken.passages())
    with pytest.raises(Refusal, match=r"^ir_datasets isthmus-broken test qrels: row 1: column relevance is 200,"):
        list(broken.judgements())
    assert broken.count() == 0


def test_every_collection_of_the_papers_is_known():
    names = {"beir/nfcorpus": "train dev test", "msmarco-passage": "train dev", "beir/scifact/test": "test"}
    for name, splits in names.items():
        assert " ".join(read(name, 110).subsets) == splits
