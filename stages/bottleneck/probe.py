"""What the bottleneck is worth as a retriever before any fine-tuning, and whether it is collapsing."""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from stages.artifacts.checkpoints import TextEncoder, Vocabulary
from stages.artifacts.ragged import Ragged
from stages.training.buckets import cut
from stages.training.processes import Processes, autocast

PADDED = 8192  # pieces, padding included, in one forward pass


@dataclass(frozen=True)
class Probe:
    """Dev queries, some passages among which their positives are, and which those are.

    Attributes:
        queries: [Q] rows of ids without specials.
        passages: [P] rows of ids without specials.
        positive: [Q, P] bool.
    """

    queries: Ragged
    passages: Ragged
    positive: np.ndarray
    vocabulary: Vocabulary
    longest: int
    precision: str

    def __call__(self, encoder: TextEncoder, processes: Processes) -> dict[str, float]:
        """RR@10 of cosine between raw vectors, and the mean cosine of two different passages (1 is collapse)."""
        with autocast(processes.device, self.precision):
            queries, passages = (self.vectors(encoder, texts, processes) for texts in (self.queries, self.passages))
        scores = queries @ passages.T
        best = scores.masked_fill(~torch.from_numpy(self.positive), -2).amax(1, keepdim=True)
        rank = 1 + (scores > best).sum(1)
        reciprocal = torch.where(rank <= 10, 1 / rank, 0.0).mean().item()
        count = len(passages)
        alike = ((passages.sum(0).square().sum() - count) / (count * (count - 1))).item()
        return {"probe/RR@10": reciprocal, "probe/cosine": alike}

    def vectors(self, encoder: TextEncoder, texts: Ragged, processes: Processes) -> Tensor:
        """[rows, d] of length 1, on the CPU."""
        order = np.argsort(texts.lengths, kind="stable")
        lengths = np.minimum(texts.lengths[order], self.longest - 2) + 2
        out = torch.empty(len(texts), encoder.config.hidden_size)
        for run in cut(lengths, PADDED):
            ids = np.full((run.stop - run.start, int(lengths[run].max())), self.vocabulary.pad, dtype=np.int64)
            ids[:, 0] = self.vocabulary.cls
            ids[:, 1:-1] = texts.take(order[run], self.longest - 2).padded(self.vocabulary.pad, ids.shape[1] - 2)
            ids[np.arange(len(ids)), lengths[run] - 1] = self.vocabulary.sep
            real = torch.from_numpy(lengths[run]).to(processes.device)
            states = encoder.states(torch.from_numpy(ids).to(processes.device), real)
            pooled = encoder.pool(states, real).float().cpu()
            out[torch.from_numpy(order[run])] = torch.nn.functional.normalize(pooled, dim=-1)
        return out
