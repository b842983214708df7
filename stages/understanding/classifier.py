"""An encoder with BERT's head (Devlin et al. 2019, section 4.1): pooled [CLS], dropout, a linear map."""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from stages.artifacts.checkpoints import TextEncoder, Vocabulary
from stages.artifacts.lastlayer import read_first
from stages.artifacts.ragged import Ragged
from stages.embedding.pieces import Padded, chunks, single
from stages.ranking.pieces import paired
from stages.training.buckets import Buckets
from stages.training.loop import Observed
from stages.training.processes import Processes


@dataclass(frozen=True)
class Texts:
    """Examples in pieces: ``[CLS] a [SEP]`` or ``[CLS] a [SEP] b [SEP]``, the longer of a pair cut first.

    Attributes:
        columns: pieces of every text of an example.
        labels: [n] classes or values.
        longest: pieces of an example, special ones included.
    """

    columns: list[Ragged]
    labels: np.ndarray
    vocabulary: Vocabulary
    longest: int

    @property
    def cuts(self) -> list[np.ndarray]:
        """[n] pieces that are kept of every text."""
        room = self.longest - 1 - len(self.columns)
        lengths = [column.lengths for column in self.columns]
        if len(lengths) == 1:
            return [np.minimum(lengths[0], room)]
        first, second = lengths
        over = first + second > room
        half = np.where(second <= room // 2, room - second, (room + 1) // 2)
        kept = np.where(over, np.minimum(first, half), first)
        return [kept, np.minimum(second, room - kept)]

    @property
    def lengths(self) -> np.ndarray:
        """[n] pieces of every example, special ones included."""
        lengths: np.ndarray = sum(self.cuts, start=np.full(len(self.labels), 1 + len(self.columns)))
        return lengths

    def padded(self, rows: np.ndarray) -> Padded:
        """Some examples as a model reads them."""
        parts = [column.take(rows, cut[rows]) for column, cut in zip(self.columns, self.cuts, strict=True)]
        if len(parts) == 1:
            return single(parts[0], np.arange(len(rows)), self.vocabulary, self.longest)
        return paired(parts[0], parts[1], self.vocabulary, self.longest, self.longest)


@dataclass(frozen=True)
class Batch:
    """A micro-batch: examples and their labels."""

    texts: Padded
    labels: Tensor
    counts: dict[str, int]

    def to(self, device: torch.device) -> "Batch":
        """The same batch on another device."""
        return Batch(self.texts.to(device), self.labels.to(device), self.counts)


class Batches:
    """Makes this process's micro-batches of any step, of at most ``budget`` pieces with their padding."""

    def __init__(self, texts: Texts, batch: int, seed: int, budget: int, processes: Processes):
        self.texts, self.budget, self.processes = texts, budget, processes
        self.lengths = texts.lengths
        self.buckets = Buckets(self.lengths, batch, seed)

    def __call__(self, step: int) -> list[Batch]:
        rows = self.buckets(step)[self.processes.rank :: self.processes.world]
        return [self._batch(rows[part]) for part in chunks(self.lengths[rows], self.budget, self.processes.device)]

    def _batch(self, rows: np.ndarray) -> Batch:
        counts = {"examples": len(rows), "tokens": int(self.lengths[rows].sum())}
        return Batch(self.texts.padded(rows), torch.from_numpy(self.texts.labels[rows]), counts)


class Classifier(nn.Module):
    """Logits of classes, or one value.

    Attributes:
        classes: 0 for a regression, trained on squared errors; else cross-entropy.
    """

    def __init__(self, encoder: TextEncoder, classes: int, dropout: float, seed: int):
        super().__init__()
        self.encoder, self.classes = encoder, classes
        read_first(encoder.transformer)
        width = int(encoder.config.hidden_size)
        torch.manual_seed(seed)
        self.pooler, self.head = nn.Linear(width, width), nn.Linear(width, max(classes, 1))
        self.dropout = nn.Dropout(dropout)
        for layer in (self.pooler, self.head):
            nn.init.normal_(layer.weight, std=0.02)
            nn.init.zeros_(layer.bias)

    def logits(self, texts: Padded) -> Tensor:
        """[B, classes or 1] float32."""
        real = torch.arange(texts.ids.shape[1], device=texts.ids.device) < texts.lengths[:, None]
        inputs = {"input_ids": texts.ids, "attention_mask": real[:, None, None, :]}
        if getattr(self.encoder.config, "type_vocab_size", 0) > 1:
            inputs["token_type_ids"] = texts.segments
        states = self.encoder.transformer(**inputs).last_hidden_state[:, 0]
        logits: Tensor = self.head(self.dropout(torch.tanh(self.pooler(states)))).float()
        return logits

    def forward(self, batch: Batch, totals: dict[str, int]) -> tuple[Tensor, Observed]:
        """This micro-batch's share of the mean loss over the examples of a step."""
        logits = self.logits(batch.texts)
        if self.classes:
            loss = nn.functional.cross_entropy(logits, batch.labels, reduction="sum")
        else:
            loss = nn.functional.mse_loss(logits[:, 0], batch.labels, reduction="sum")
        return loss / totals["examples"], {}


@torch.inference_mode()
def predict(model: Classifier, texts: Texts, budget: int) -> np.ndarray:
    """[n] classes, or values of a regression."""
    device, lengths = next(model.parameters()).device, texts.lengths
    out = np.empty(len(lengths), dtype=np.int64 if model.classes else np.float32)
    model.eval()
    for rows in chunks(lengths, budget, device):
        logits = model.logits(texts.padded(rows).to(device))
        out[rows] = (logits.argmax(1) if model.classes else logits[:, 0]).cpu().numpy()
    return out
