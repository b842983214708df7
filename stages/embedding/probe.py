"""How well dev queries are answered while a model is trained: cheap, and only for a curve or a gate."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
from tokenizers import Tokenizer

from stages.artifacts.checkpoints import TextEncoder, Vocabulary
from stages.artifacts.judgements import asked, judged
from stages.artifacts.ragged import Ragged
from stages.artifacts.refusal import Refusal
from stages.embedding.pieces import tokenised
from stages.embedding.vectors import encode_rows
from stages.training.precision import Numbers, autocast

CUTOFF = 10
PROBE = 7  # its stream of a seed


@dataclass(frozen=True)
class Sample:
    """Some dev queries, and some passages among which all of their positives are.

    Attributes:
        queries: pieces of the queries.
        positives: row i holds query i's positives as places in ``rows``.
        rows: ascending rows of the passages that are ranked.
    """

    queries: Ragged
    positives: Ragged
    rows: np.ndarray


@dataclass(frozen=True)
class Probe:
    """RR@10 of dev queries, each against one fixed sample of passages, and how alike the passages' vectors are.

    Attributes:
        passages: pieces of all passages.
        name: what its values are called before their own names.
        cosine: compare by cosine even where the encoder's vectors have any length.
    """

    encoder: TextEncoder
    sample: Sample
    passages: Ragged
    vocabulary: Vocabulary
    longest_query: int
    longest: int
    precision: Numbers
    name: str
    cosine: bool = False

    def __call__(self, step: int) -> dict[str, float]:
        """RR@10 of the encoder as it now is, and the mean cosine of two different passages (1 is collapse)."""
        queries, passages = self.vectors()
        unit = normalised(passages)
        scores = normalised(queries) @ unit.T if self.cosine else queries @ passages.T
        ranks = [reciprocal_rank(row, self.positives(i)) for i, row in enumerate(scores)]
        return {f"{self.name}RR@{CUTOFF}": float(np.mean(ranks)), f"{self.name}cosine": mean_cosine(unit)}

    def vectors(self) -> tuple[np.ndarray, np.ndarray]:
        """[Q, d] of the queries and [P, d] of the sampled passages."""
        rows = np.arange(len(self.sample.queries))
        with autocast(next(self.encoder.parameters()).device, self.precision):
            return (
                encode_rows(self.encoder, self.sample.queries, rows, self.vocabulary, self.longest_query),
                encode_rows(self.encoder, self.passages, self.sample.rows, self.vocabulary, self.longest),
            )

    def positives(self, query: int) -> np.ndarray:
        """Places in the sample."""
        return self.sample.positives.take(np.array([query])).values


def dev_sample(
    queries: Path, qrels: Path, ids: pa.Array, tokenizer: Tokenizer, count: int, distractors: int, seed: int
) -> Sample:
    """``count`` dev queries with positives, every positive of theirs, and ``distractors`` passages drawn from ``ids``.

    Raises:
        Refusal: no dev query has a positive.
    """
    dev = asked(queries, ["dev"])
    positives = judged(qrels, dev, ids)
    rng = np.random.default_rng([seed, PROBE])
    chosen = np.sort(rng.permutation(np.flatnonzero(positives.lengths > 0))[:count])
    if not len(chosen):
        raise Refusal(f"{qrels}: no dev query has a positive, and a probe needs some")
    theirs = positives.take(chosen)
    others = rng.choice(len(ids), min(distractors, len(ids)), replace=False)
    rows = np.unique(np.concatenate([theirs.values, others]))
    pieces = tokenised([dev.texts[row] for row in chosen], tokenizer)
    return Sample(pieces, Ragged(np.searchsorted(rows, theirs.values), theirs.offsets), rows)


def reciprocal_rank(scores: np.ndarray, positives: np.ndarray) -> float:
    """1 / rank of the best positive, 0 behind rank 10; other passages win ties."""
    others = np.delete(scores, positives)
    rank = 1 + int((others >= scores[positives].max()).sum())
    return 1.0 / rank if rank <= CUTOFF else 0.0


def mean_cosine(unit: np.ndarray) -> float:
    """[n, d] vectors of length 1 → the mean product of two different ones; 0 of a single one."""
    count = len(unit)
    total = float(np.square(unit.sum(0, dtype=np.float64)).sum())
    return (total - count) / max(count * (count - 1), 1)


def normalised(vectors: np.ndarray) -> np.ndarray:
    """[n, d] of length 1."""
    unit: np.ndarray = vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12)
    return unit
