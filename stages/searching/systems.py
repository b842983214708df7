"""Four ways to rank a corpus for one query: BM25, the retriever, both together, and the retriever's best re-ranked."""

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from threading import BoundedSemaphore, Lock
from typing import Any, Literal

import numpy as np

from stages.artifacts.checkpoints import load_tokenizer, load_vocabulary
from stages.artifacts.refusal import Refusal
from stages.embedding.pieces import tokenised
from stages.embedding.vectors import encode_rows
from stages.ranking import crossencoder, encoding
from stages.ranking.feedback import moved
from stages.ranking.fusing import add_up, min_max
from stages.ranking.lexical import Searcher
from stages.ranking.towers import query_folder
from stages.searching.index import LUCENE, Library
from stages.training.precision import Numbers
from stages.training.processes import join

System = Literal["bm25", "retriever", "fused", "reranked"]
QUERY = 1_000  # characters of a query, at most
CUT = 512  # pieces of a passage that a cross-encoder may be shown, as in the Tokens table
FUSED = 100  # passages of either ranking that are added up, at least

Found = tuple[np.ndarray, np.ndarray]  # rows of passages and their scores, best first


@dataclass(frozen=True)
class Hit:
    """One passage found."""

    rank: int
    score: float
    passage_id: str
    title: str
    text: str


@dataclass(frozen=True)
class Settings:
    """How queries are read and passages re-ranked.

    Attributes:
        model: the retriever's folder.
        reranker: the cross-encoder's folder, or None.
        longest, longest_query, longest_pair: pieces of a passage, of a query and of both in one text, special ones
            included.
        feedback, feedback_weight: passages that the retriever's query is moved towards, and how far.
        precision: of both models.
        candidates: passages that are re-ranked.
        prior: weight of the retriever's score beside the cross-encoder's logit.
        k1, b: BM25's.
    """

    model: Path
    reranker: Path | None
    longest: int
    longest_query: int
    longest_pair: int
    feedback: int
    feedback_weight: float
    precision: Numbers
    candidates: int
    prior: float
    k1: float
    b: float


class Systems:
    """Searches one library; may be shared by threads. A model is loaded when it is first asked."""

    def __init__(self, library: Library, settings: Settings):
        self.library, self.settings = library, settings
        self.device = join().device
        self.loading = Lock()
        self.computing = BoundedSemaphore(os.cpu_count() or 1)  # more at once would only wait for one another
        self.threads = ThreadPoolExecutor(os.cpu_count() or 1)

    @property
    def names(self) -> list[System]:
        """What can be asked."""
        always: list[System] = ["bm25", "retriever", "fused"]
        return [*always, "reranked"] if self.settings.reranker else always

    def load(self, names: list[System]) -> None:
        """Load what some systems need, so that their first query is as fast as the next ones."""
        for name in names:
            self.search(name, "warm up", 1)

    def search(self, name: str, query: str, depth: int) -> list[Hit]:
        """The best passages for a query; nothing for a query without text.

        Raises:
            Refusal: the query is too long, or there is no such system.
        """
        if len(query) > QUERY:
            raise Refusal(f"query: {len(query)} characters, at most {QUERY} are read")
        ways: dict[str, Callable[[str, int], Found]] = {"bm25": self.bm25, "retriever": self.dense}
        ways |= {"fused": self.fused, "reranked": self.reranked}
        if name not in self.names:
            raise Refusal(f"system {name!r}: expected one of {', '.join(self.names)}")
        if not query.strip():
            return []
        rows, scores = ways[name](query, min(depth, len(self.library)))
        found = zip(self.library.take(rows), scores.tolist(), strict=True)
        return [Hit(place + 1, score, **texts) for place, (texts, score) in enumerate(found)]

    def bm25(self, query: str, depth: int) -> Found:
        """Lucene's best."""
        ((names, scores),) = self._lucene.rank([query], depth, self.threads)
        return self.library.rows(names), scores

    def dense(self, query: str, depth: int) -> Found:
        """The passages whose vectors have the greatest inner products with the query's."""
        tokenizer, vocabulary, encoder = self._encoder
        with self.computing:
            pieces = tokenised([query], tokenizer)
            longest = self.settings.longest_query
            vector = encode_rows(encoder, pieces, np.zeros(1, dtype=np.int64), vocabulary, longest)
            if self.settings.feedback:
                vector = moved(vector, self._mean(vector), self.settings.feedback_weight)
            scores, rows = self.library.vectors.search(vector, depth)
        order = np.lexsort((rows[0], -scores[0]))
        return rows[0][order], scores[0][order]

    def _mean(self, vector: np.ndarray) -> np.ndarray:
        """[1, d] of the passages that are taken for relevant."""
        vectors = self.library.vectors
        _, first = vectors.search(vector, min(self.settings.feedback, len(self.library)))
        mean: np.ndarray = vectors.reconstruct_batch(first[0]).mean(0, keepdims=True)
        return mean

    def fused(self, query: str, depth: int) -> Found:
        """BM25 and the retriever added up, each from 0 to 1 within the query, as ``fuse`` does by interpolation."""
        wanted = min(max(depth, FUSED), len(self.library))
        rows, scores = add_up([self.bm25(query, wanted), self.dense(query, wanted)], (1.0, 1.0), min_max)
        order = np.lexsort((rows, -scores))[:depth]
        return rows[order], scores[order]

    def reranked(self, query: str, depth: int) -> Found:
        """The retriever's best in the cross-encoder's order; what it does not read follows, one below the other."""
        wanted = min(max(depth, self.settings.candidates), len(self.library))
        rows, scores = self.dense(query, wanted)
        top = min(self.settings.candidates, len(rows))
        tokenizer, vocabulary, model = self._reranker
        texts = [
            f"{hit['title']} {hit['text']}" if hit["title"] else hit["text"] for hit in self.library.take(rows[:top])
        ]
        with self.computing:
            pieces = tokenised([query], tokenizer), tokenised(texts, tokenizer)
            passages = pieces[1].take(np.arange(top), CUT)
            pairs = crossencoder.Pairs(
                pieces[0], passages, vocabulary, self.settings.longest_pair, self.settings.longest_query
            )
            logits = crossencoder.score(model, pairs, np.zeros(top, dtype=np.int64), np.arange(top))
        logits = logits + self.settings.prior * scores[:top]
        order = np.argsort(-logits, kind="stable")
        behind = np.floor(logits.min(initial=0)) - 1 - np.arange(len(rows) - top)
        rows = np.concatenate([rows[:top][order], rows[top:]])
        return rows[:depth], np.concatenate([logits[order], behind])[:depth]

    @property
    def _lucene(self) -> Searcher:
        with self.loading:
            return self._open_lucene

    @property
    def _encoder(self) -> tuple[Any, ...]:
        with self.loading:
            return self._open_encoder

    @property
    def _reranker(self) -> tuple[Any, ...]:
        with self.loading:
            return self._open_reranker

    @cached_property
    def _open_lucene(self) -> Searcher:
        return Searcher(self.library.folder / LUCENE, self.settings.k1, self.settings.b)

    @cached_property
    def _open_encoder(self) -> tuple[Any, ...]:
        model = query_folder(self.settings.model)
        encoder = encoding.for_inference(model, self.settings.precision, self.device).vectors_only()
        return load_tokenizer(model), load_vocabulary(model), encoder

    @cached_property
    def _open_reranker(self) -> tuple[Any, ...]:
        folder = self.settings.reranker
        assert folder is not None
        model = crossencoder.for_inference(folder, self.settings.precision, self.device)
        return load_tokenizer(folder), load_vocabulary(folder), model
