"""``trec:TOPICS,QRELS``: a test set as TREC hands it out, for a collection that is elsewhere.

Topics are lines ``id TAB text``; judgements ``topic iteration passage relevance`` by tabs or blanks, or one of the
other forms of MS MARCO's files. TREC DL's are such: https://microsoft.github.io/msmarco/TREC-Deep-Learning.
"""

from collections.abc import Iterator
from pathlib import Path

from stages.artifacts.refusal import Refusal
from stages.sources.collection import Judgement, Passage, Query
from stages.sources.tabular import judgements_of, tsv_queries


class Trec:
    """The `Source`; all of it is split ``test``, and it has no passages."""

    def __init__(self, topics: Path, qrels: Path):
        self.topics, self.qrels = topics, qrels

    def count(self) -> int:
        return 0

    def passages(self) -> Iterator[Passage]:
        raise Refusal(f"source trec: {self.topics} comes without passages (python -m stages topics reads it)")

    def queries(self) -> Iterator[Query]:
        return tsv_queries(self.topics)

    def judgements(self) -> Iterator[Judgement]:
        return judgements_of("test", self.qrels)


def read(rest: str, words: int) -> Trec:
    """The reader of ``trec:rest``. Raises `Refusal` unless ``rest`` is two paths with a comma between."""
    topics, _, qrels = rest.partition(",")
    if not topics or not qrels:
        raise Refusal(f"source trec:{rest}: expected trec:TOPICS,QRELS")
    return Trec(Path(topics), Path(qrels))
