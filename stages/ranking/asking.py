"""A query encoder in training against passages that stay where they are."""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from stages.artifacts.checkpoints import TextEncoder, Vocabulary
from stages.artifacts.ragged import Ragged
from stages.embedding.pieces import Padded, framed_lengths, single
from stages.ranking.encoding import Vectors
from stages.ranking.losses import distillation
from stages.training.loop import Observed
from stages.training.processes import Processes


@dataclass(frozen=True)
class Lessons:
    """What a teacher says of some queries: row i of each is of one query.

    Attributes:
        queries: [n] rows of the queries' pieces.
        passages: rows of passages, best first; scores: the teacher's.
        best: passages that are learnt at every step; drawn: how many more, anew, of those behind them.
    """

    queries: np.ndarray
    passages: Ragged
    scores: Ragged
    best: int
    drawn: int

    def of(self, lesson: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        """[best + drawn] rows of passages and scores of one; where there are fewer, row 0 with NaN fills up."""
        start, stop = self.passages.offsets[lesson : lesson + 2]
        first = np.arange(start, min(start + self.best, stop))
        rest = np.arange(start + len(first), stop)
        places = np.concatenate([first, rng.choice(rest, min(self.drawn, len(rest)), replace=False)])
        gap = self.best + self.drawn - len(places)
        rows, scores = self.passages.values[places], self.scores.values[places]
        return np.pad(rows, (0, gap)), np.pad(scores, (0, gap), constant_values=np.nan)


@dataclass(frozen=True)
class Batch:
    """Some queries, and the vectors [B, k, d] and scores [B, k] of the passages that a teacher has ranked."""

    texts: Padded
    passages: Tensor
    scores: Tensor
    counts: dict[str, int]

    def to(self, device: torch.device) -> "Batch":
        """The same batch on another device."""
        return Batch(self.texts.to(device), self.passages.to(device), self.scores.to(device), self.counts)


@dataclass(frozen=True)
class Batches:
    """Makes the batch of any step: queries drawn anew for every step, each once in it at most."""

    lessons: Lessons
    pieces: Ragged
    vectors: Vectors
    vocabulary: Vocabulary
    longest: int
    batch: int
    seed: int
    processes: Processes

    def __call__(self, step: int) -> list[Batch]:
        """This process's one micro-batch."""
        count = len(self.lessons.queries)
        drawn = np.random.default_rng([self.seed, step]).choice(count, min(self.batch, count), replace=False)
        mine = drawn[self.processes.rank :: self.processes.world]
        lessons = [self.lessons.of(lesson, np.random.default_rng([self.seed, step, lesson])) for lesson in mine]
        passages, scores = (np.stack(column) for column in zip(*lessons, strict=True))
        rows = self.lessons.queries[mine]
        vectors = self.vectors.take(passages.ravel()).reshape(*passages.shape, -1)
        tokens = int(framed_lengths(self.pieces, rows, self.longest).sum())
        return [
            Batch(
                single(self.pieces, rows, self.vocabulary, self.longest),
                torch.from_numpy(vectors),
                torch.from_numpy(scores),
                {"queries": len(mine), "tokens": tokens},
            )
        ]


class Asker(nn.Module):
    """The query encoder, and how far its softmax over a teacher's passages is from the teacher's.

    Attributes:
        scale: 1/τ of the student's products; sharpness: of the teacher's scores.
    """

    def __init__(self, encoder: TextEncoder, scale: float, sharpness: float):
        super().__init__()
        self.encoder, self.scale, self.sharpness = encoder, scale, sharpness

    def forward(self, batch: Batch, totals: dict[str, int]) -> tuple[Tensor, Observed]:
        """This process's share of the mean KL divergence."""
        vectors = self.encoder(batch.texts.ids, batch.texts.lengths)
        with torch.autocast(vectors.device.type, enabled=False):
            student = self.scale * torch.einsum("bd,bkd->bk", vectors.float(), batch.passages)
            loss = distillation(student, self.sharpness * batch.scores)
        here = torch.tensor(float(len(vectors)))
        return loss * len(vectors) / totals["queries"], {"divergence": (loss.detach().cpu() * here, here)}
