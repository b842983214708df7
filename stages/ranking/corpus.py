"""A corpus ranked by a retriever for some queries: exact search over vectors that are made where they are missing."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa

from stages.artifacts.checkpoints import load_tokenizer
from stages.artifacts.judgements import Asked, passage_ids, sorted_places
from stages.artifacts.ragged import Ragged, read_ragged
from stages.artifacts.scratch import content_hash
from stages.artifacts.tables import Run, Tokens
from stages.embedding.pieces import tokenised
from stages.ranking import hybrid, search
from stages.ranking.bags import has_bag
from stages.ranking.encoding import Vectors, Wanted, encode
from stages.ranking.feedback import Feedback, Moved
from stages.ranking.hybrid import Questions, encode_hybrid
from stages.ranking.search import Found, Index, Queried, best_backend
from stages.ranking.towers import query_folder
from stages.training.precision import Numbers
from stages.training.processes import Processes
from stages.training.progress import Progress

ASKED = Feedback()  # queries as they were asked


@dataclass(frozen=True)
class Corpus:
    """The passages to rank: a Tokens table, read."""

    ids: pa.Array
    pieces: Ragged
    path: Path

    @property
    def content(self) -> str:
        """A hash of the table."""
        return content_hash(self.path)

    @staticmethod
    def read(tokens: Path) -> "Corpus":
        """From a Tokens table. Raises `Refusal` where there is none, or no passage."""
        return Corpus(passage_ids(tokens), read_ragged(Tokens, tokens, "pieces"), tokens)


@dataclass(frozen=True)
class Reading:
    """How texts are cut and encoded: pieces of a passage and of a query, special ones included; the precision."""

    longest: int
    longest_query: int
    precision: Numbers


@dataclass(frozen=True)
class Vectorised:
    """A corpus and queries as vectors, ready to search."""

    passages: Vectors
    questions: Queried
    hybrid: bool

    def search(self, ids: pa.Array, out: Path, asking: Asked, depth: int, feedback: Feedback = ASKED) -> None:
        """Write the ``depth`` best passages of every query."""
        block, queries = (hybrid.BLOCK, hybrid.QUERIES) if self.hybrid else (search.PASSAGES, search.QUERIES)
        index = Index(self.passages, sorted_places(ids), best_backend(), block)
        questions = Moved(self.questions, index, feedback) if feedback.passages else self.questions
        with Run.writer(out) as writer, Progress("search", len(asking), "queries") as bar:
            for start, rows, scores in index.search(questions, depth, queries):
                writer.write(_columns(asking.ids.slice(start, len(rows)), ids, (scores, rows)))
                bar.advance(len(rows))

    def told(self) -> dict[str, dict[str, float]]:
        """How many there are, how fast they were encoded, and what searching the passages costs."""
        passages, count = self.passages, len(self.passages)
        size = {"bytes": passages.bytes, "bytes_per_passage": passages.bytes / count, "products": passages.numbers}
        return {
            "counts": {"queries": len(self.questions), "passages": count},
            "index": size,
            "speed": {"passage_tokens_per_second": passages.speed, "query_tokens_per_second": self.questions.speed},
        }


def vectorised(
    model: Path, corpus: Corpus, asking: Asked, texts: str, reading: Reading, processes: Processes
) -> Vectorised:
    """The vectors of a corpus and of queries by a retriever.

    Args:
        texts: a hash of the queries' texts.
    """
    asked = tokenised(asking.texts, load_tokenizer(model))
    passages = Wanted(corpus.pieces, corpus.content, reading.longest, "encode passages")
    queries = Wanted(asked, texts, reading.longest_query, "encode queries")
    how = reading.precision, processes
    if has_bag(model):
        return Vectorised(encode_hybrid(model, passages, *how), Questions(model, queries, *how), True)
    return Vectorised(encode(model, passages, *how), encode(query_folder(model), queries, *how), False)


def _columns(queries: pa.Array, ids: pa.Array, found: Found) -> dict[str, object]:
    """The rows of a Run of some queries' [n, k] scores and passage rows."""
    scores, rows = found
    count, k = rows.shape
    return {
        "query_id": queries.take(pa.array(np.repeat(np.arange(count), k))),
        "passage_id": ids.take(pa.array(rows.ravel())),
        "score": scores.ravel(),
        "rank": np.tile(np.arange(1, k + 1, dtype=np.int32), count),
    }
