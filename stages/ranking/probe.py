"""How well dev queries are answered while a model is trained: cheap, and only for a curve or a gate."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import torch
from tokenizers import Tokenizer

from stages.artifacts.checkpoints import TextEncoder, Vocabulary
from stages.artifacts.ragged import Ragged
from stages.ranking.encoding import encode_rows
from stages.ranking.judgements import asked, judged
from stages.ranking.pieces import tokenised
from stages.training.processes import autocast

CUTOFF = 10
PROBE = 7  # its stream of a seed


@dataclass(frozen=True)
class Probe:
    """RR@10 of some dev queries, each against its positives and one fixed sample of passages.

    Attributes:
        queries: pieces of the sampled queries; passages: of all passages.
        positives: row i holds query i's positives as places in ``sample``.
        sample: rows of the passages that are ranked.
    """

    encoder: TextEncoder
    queries: Ragged
    positives: Ragged
    passages: Ragged
    sample: np.ndarray
    vocabulary: Vocabulary
    longest_query: int
    longest: int
    precision: str

    def __call__(self, step: int) -> dict[str, float]:
        """{"dev RR@10": …} of the encoder as it now is."""
        with autocast(next(self.encoder.parameters()).device, self.precision):
            rows = np.arange(len(self.queries))
            queries = encode_rows(self.encoder, self.queries, rows, self.vocabulary, self.longest_query)
            passages = encode_rows(self.encoder, self.passages, self.sample, self.vocabulary, self.longest)
        scores = (torch.from_numpy(queries) @ torch.from_numpy(passages).T).numpy()
        values = [
            reciprocal_rank(scores[i], self.positives.take(np.array([i])).values) for i in range(len(self.queries))
        ]
        return {"dev RR@10": float(np.mean(values))}


def dev_sample(
    queries: Path, qrels: Path, ids: pa.Array, tokenizer: Tokenizer, count: int, distractors: int, seed: int
) -> tuple[Ragged, Ragged, np.ndarray]:
    """Which dev queries and passages a probe looks at.

    Returns:
        the pieces of ``count`` queries; their positives as places in the sample; the sample, ascending rows of
        ``ids``: every positive of these queries and ``distractors`` others.
    """
    dev = asked(queries, ["dev"])
    positives = judged(qrels, dev, ids)
    rng = np.random.default_rng([seed, PROBE])
    chosen = np.sort(rng.permutation(np.flatnonzero(positives.lengths > 0))[:count])
    theirs = positives.take(chosen)
    others = rng.choice(len(ids), min(distractors, len(ids)), replace=False)
    sample = np.unique(np.concatenate([theirs.values, others]))
    pieces = tokenised([dev.texts[row] for row in chosen], tokenizer)
    return pieces, Ragged(np.searchsorted(sample, theirs.values), theirs.offsets), sample


def reciprocal_rank(scores: np.ndarray, positives: np.ndarray) -> float:
    """1 / rank of the best positive, 0 behind rank 10; other passages win ties."""
    if not len(positives):
        return 0.0
    others = np.delete(scores, positives)
    rank = 1 + int((others >= scores[positives].max()).sum())
    return 1.0 / rank if rank <= CUTOFF else 0.0
