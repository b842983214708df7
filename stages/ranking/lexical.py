"""BM25 by Lucene: Anserini's analyser, document and query forms, so that scores are those of the literature."""

import json
import re
from binascii import a2b_base64
from collections.abc import Iterable, Iterator
from concurrent.futures import Executor
from pathlib import Path

import numpy as np

from stages.ranking.java import java

BLANKS = "".join(map(chr, range(33)))  # what Java's String.trim removes
BUFFER = 256  # MiB of postings held before Lucene writes a segment
CLAUSES = 2**31 - 1  # Lucene refuses queries of over 1,024 terms unless told otherwise

# What a hit was sorted by, score and id, in that JSON; json.loads takes six times as long over it
HIT = re.compile(r'"fields":\[([^,]+),\{"bytes":"([^"]*)","offset":(\d+),"length":(\d+)')


def index(texts: Iterable[tuple[list[str], list[str]]], folder: Path) -> None:
    """Index batches of (passage_ids, texts) into ``folder``, as one segment.

    One thread, so that the same passages make the same index. Texts without a visible character are left out,
    as Anserini leaves them out; nothing could find them.

    Raises:
        OSError: Lucene kept fewer passages than it was given (it hides why: a full disk, as a rule).
    """
    options = ["-collection", "JsonCollection", "-input", "", "-threads", "1", "-memoryBuffer", str(BUFFER)]
    indexer = java("io.anserini.index.SimpleIndexer")([*options, "-index", str(folder)])
    given = kept = 0
    for batch in texts:
        # ASCII JSON, as Java's strings and Python's disagree about characters outside it
        rows = [{"id": name, "contents": text} for name, text in zip(*batch, strict=True) if text.strip(BLANKS)]
        given += len(rows)
        kept += indexer.addRawDocuments([json.dumps(row) for row in rows]) if rows else 0
    indexer.close(True)
    if kept < given:
        raise OSError(f"{folder}: Lucene indexed {kept} of {given} passages")


class Searcher:
    """Searches one index; may be shared by threads.

    ``k1`` and ``b`` are BM25's (Robertson and Zaragoza 2009, Eq. 3.15), with the IDF of Lucene, log(1 + (N − n +
    0.5) / (n + 0.5)), and passage lengths rounded to Lucene's eight bits.
    """

    def __init__(self, folder: Path, k1: float, b: float):
        java("org.apache.lucene.search.IndexSearcher").setMaxClauseCount(CLAUSES)
        path = java("java.nio.file.Paths").get(str(folder))
        self.reader = java("org.apache.lucene.index.DirectoryReader").open(
            java("org.apache.lucene.store.FSDirectory").open(path)
        )
        self.searcher = java("org.apache.lucene.search.IndexSearcher")(self.reader.getContext())
        self.searcher.setSimilarity(java("org.apache.lucene.search.similarities.BM25Similarity")(k1, b))
        self.analyzer = java("io.anserini.analysis.DefaultEnglishAnalyzer").newDefaultInstance()
        self.words = java("io.anserini.search.query.BagOfWordsQueryGenerator")()
        # score, then id: the order of a Run, so that the cut at the depth is exact among equal scores
        self.order = java("io.anserini.search.SearchCollection").BREAK_SCORE_TIES_BY_DOCID
        self.json = java("com.fasterxml.jackson.databind.ObjectMapper")()
        feature = java("com.fasterxml.jackson.databind.SerializationFeature")
        self.json.configure(feature.FAIL_ON_EMPTY_BEANS, False)

    def __enter__(self) -> "Searcher":
        return self

    def __exit__(self, *error: object) -> None:
        self.reader.close()

    def rank(self, queries: list[str], depth: int, threads: Executor) -> Iterator[tuple[list[str], np.ndarray]]:
        """Yield (passage_ids, scores [passages] float32) of each query, best first; nothing found, empty."""
        for found in threads.map(lambda query: self.found(query, depth), queries):
            hits = HIT.findall(found)
            scores = np.array([score for score, *_ in hits], dtype=np.float32)
            yield [_passage(*name) for _, *name in hits], scores

    def found(self, query: str, depth: int) -> str:
        """Lucene's answer as JSON: one string crosses from Java, where each hit would cost microseconds."""
        words = self.words.buildQuery("contents", self.analyzer, query)
        return str(self.json.writeValueAsString(self.searcher.search(words, depth, self.order, False)))


def _passage(text: str, offset: str, length: str) -> str:
    """The id in a slice of base64 bytes."""
    return a2b_base64(text)[int(offset) : int(offset) + int(length)].decode("utf-8")
