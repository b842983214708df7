"""What a small generator of one's own learns from: (passage → query) pairs, or the passages themselves."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from stages.artifacts.ragged import Ragged
from stages.training.loop import Observed

ROWS = 256  # predictions whose logits are made together: they then stay in a processor's cache


@dataclass(frozen=True)
class Lesson:
    """A micro-batch. ``ids`` [B, L] are read, ``labels`` [B, T] are to be predicted, −100 where there is nothing.

    A causal model predicts what it reads one piece later, and has no ``labels`` of another length.
    """

    ids: Tensor
    lengths: Tensor
    labels: Tensor
    counts: dict[str, int]

    def to(self, device: torch.device) -> "Lesson":
        """The same batch on another device."""
        return Lesson(self.ids.to(device), self.lengths.to(device), self.labels.to(device), self.counts)


class Pairs:
    """Step → a batch of pairs, in another order in every epoch.

    Args:
        sources, targets: row i of each is a pair.
        batch: pairs in a step.
    """

    def __init__(self, sources: Ragged, targets: Ragged, batch: int, seed: int):
        self.sources, self.targets, self.batch, self.seed = sources, targets, min(batch, len(sources)), seed

    def __call__(self, step: int) -> list[Lesson]:
        epoch, place = divmod(step, len(self.sources) // self.batch)
        order = np.random.default_rng([self.seed, epoch]).permutation(len(self.sources))
        rows = order[place * self.batch :][: self.batch]
        sources, targets = self.sources.take(rows), self.targets.take(rows)
        counts = {"labels": int(targets.offsets[-1]), "tokens": int(sources.offsets[-1] + targets.offsets[-1])}
        labels = torch.from_numpy(targets.padded(-100))
        return [Lesson(torch.from_numpy(sources.padded()), torch.from_numpy(sources.lengths), labels, counts)]


class Windows:
    """Step → windows of equal length from anywhere in one long text, so that nothing is padded.

    Args:
        stream: [pieces] the tokenizer's ids of all passages in document order.
        renamed: [vocabulary] the generator's id of each of the tokenizer's.
        width: pieces that each window predicts.
        batch: windows in a step.
    """

    def __init__(self, stream: np.ndarray, renamed: np.ndarray, width: int, batch: int, seed: int):
        self.stream, self.renamed, self.width = stream, renamed, min(width, len(stream) - 1)
        self.batch, self.seed = batch, seed

    def __call__(self, step: int) -> list[Lesson]:
        starts = np.random.default_rng([self.seed, step]).integers(0, len(self.stream) - self.width, self.batch)
        pieces = self.renamed[self.stream[starts[:, None] + np.arange(self.width + 1)]]
        ids = torch.from_numpy(pieces.astype(np.int64))
        counts = {"labels": ids[:, 1:].numel(), "tokens": ids[:, 1:].numel()}
        lengths = torch.full((len(ids),), self.width)
        return [Lesson(ids[:, :-1], lengths, ids[:, 1:], counts)]


class PairLearner(nn.Module):
    """The loss of an encoder–decoder: cross-entropy of the target's pieces."""

    def __init__(self, generator: Any):
        super().__init__()
        self.generator = generator

    def forward(self, lesson: Lesson, totals: dict[str, int]) -> tuple[Tensor, Observed]:
        """This micro-batch's share of the mean loss over ``totals["labels"]`` pieces."""
        real = torch.arange(lesson.ids.shape[1], device=lesson.ids.device) < lesson.lengths[:, None]
        config = self.generator.config
        start = torch.full_like(lesson.labels[:, :1], config.decoder_start_token_id)
        shifted = torch.cat([start, lesson.labels[:, :-1].clamp(min=0)], dim=1)
        encoded = self.generator.encoder(input_ids=lesson.ids, attention_mask=real.long()).last_hidden_state
        states = self.generator.decoder(
            input_ids=shifted, encoder_hidden_states=encoded, encoder_attention_mask=real.long(), use_cache=False
        ).last_hidden_state
        wanted = lesson.labels >= 0
        scale = config.d_model**-0.5 if config.scale_decoder_outputs else 1.0
        return _loss(self.generator, states[wanted] * scale, lesson.labels[wanted], totals)


class StreamLearner(nn.Module):
    """The loss of a causal language model: cross-entropy of every piece from those before it."""

    def __init__(self, generator: Any):
        super().__init__()
        self.generator = generator

    def forward(self, lesson: Lesson, totals: dict[str, int]) -> tuple[Tensor, Observed]:
        """This micro-batch's share of the mean loss over ``totals["labels"]`` pieces."""
        states = self.generator.transformer(lesson.ids, use_cache=False).last_hidden_state
        return _loss(self.generator, states.flatten(0, 1), lesson.labels.flatten(), totals)


def _loss(generator: Any, states: Tensor, labels: Tensor, totals: dict[str, int]) -> tuple[Tensor, Observed]:
    parts = zip(torch.split(states, ROWS), torch.split(labels, ROWS), strict=True)
    losses = [nn.functional.cross_entropy(generator.lm_head(x).float(), y, reduction="sum") for x, y in parts]
    return torch.stack(losses).sum() / totals["labels"], {}
