"""``ir_datasets:ID``: a collection of the catalogue https://ir-datasets.com, which the library downloads and verifies.

ID is a dataset whose subsets train, dev and test hold the judgements (``beir/nfcorpus``, ``msmarco-passage``), or one
dataset with judgements (``msmarco-passage/trec-dl-2019/judged``): then train, dev or test in its ID is the split, and
test where there is none. The library keeps a copy of what it downloads in IR_DATASETS_HOME.
"""

import errno
from collections.abc import Iterable, Iterator
from typing import Any

import ir_datasets

from stages.artifacts.refusal import Refusal
from stages.artifacts.tables import SPLITS
from stages.sources.collection import Answer, Judgement, Passage, Query
from stages.sources.lines import grade

# MS MARCO's papers report the small development set; other catalogues say validation.
SUBSETS = {"train": ("train",), "dev": ("dev/small", "dev", "validation", "valid"), "test": ("test",)}


class IrDatasets:
    """The `Source`."""

    def __init__(self, name: str):
        self.name = name
        self.subsets = _subsets(name)
        self.dataset = next(iter(self.subsets.values()))

    def count(self) -> int:
        return int(self.dataset.docs_count() or 0)

    def passages(self) -> Iterator[Passage]:
        origin = f"ir_datasets {self.name} docs"
        for row, document in self._numbered(self.dataset.docs_iter()):
            title = str(getattr(document, "title", "") or "") if hasattr(document, "text") else ""
            yield Passage(document.doc_id, document.doc_id, 0, title, _text(document), origin, row)

    def queries(self) -> Iterator[Query]:
        for split, dataset in self.subsets.items():
            for row, query in self._numbered(dataset.queries_iter()):
                yield Query(query.query_id, _text(query), f"ir_datasets {self.name} {split} queries", row)

    def judgements(self) -> Iterator[Judgement]:
        for split, dataset in self.subsets.items():
            origin = f"ir_datasets {self.name} {split} qrels"
            for row, line in self._numbered(dataset.qrels_iter()):
                relevance = grade(str(line.relevance), "relevance", origin, row)
                yield Judgement(split, line.query_id, line.doc_id, relevance, origin, row)

    def answers(self) -> Iterator[Answer]:
        for split, dataset in self.subsets.items():
            origin = f"ir_datasets {self.name} {split} queries"
            for row, query in self._numbered(dataset.queries_iter()):
                for answer in getattr(query, "answers", ()):
                    yield Answer(split, query.query_id, str(answer), origin, row)

    def _numbered(self, records: Iterable[Any]) -> Iterator[tuple[int, Any]]:
        """The records counted from 1. Raises `Refusal` where they can neither be found nor downloaded."""
        try:
            yield from enumerate(records, start=1)
        except (OSError, RuntimeError) as error:
            if getattr(error, "errno", None) == errno.ENOSPC:
                raise
            raise Refusal(f"source ir_datasets: {self.name} cannot be had: {' '.join(str(error).split())}") from error


def read(rest: str, words: int) -> IrDatasets:
    """The reader of ``ir_datasets:rest``; documents are taken as they are. Raises `Refusal` for an unknown ID."""
    return IrDatasets(rest)


def _subsets(name: str) -> dict[str, Any]:
    """The dataset that holds the judgements of each split."""
    known = set(ir_datasets.registry)
    found = {}
    for split, endings in SUBSETS.items():
        ending = next((ending for ending in endings if f"{name}/{ending}" in known), None)
        if ending:
            found[split] = ir_datasets.load(f"{name}/{ending}")
    if not found:
        try:
            dataset = ir_datasets.load(name)
        except KeyError as error:
            raise Refusal(f"source ir_datasets: there is no dataset {name}") from error
        found[next((split for split in SPLITS if split in name.split("/")), "test")] = dataset
    for split, dataset in found.items():
        for kind in ("docs", "queries", "qrels"):
            if not dataset.has(kind):
                raise Refusal(f"source ir_datasets: {name} has no {kind} for {split}")
    return found


def _text(record: Any) -> str:
    """The text of a document or query, or whatever the library takes for it."""
    return str(record.text if hasattr(record, "text") else record.default_text())
