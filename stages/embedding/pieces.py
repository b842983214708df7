"""Integer texts on their way into a model: special pieces, padding, and batches that waste little padding."""

from dataclasses import dataclass

import numpy as np
import torch
from tokenizers import Tokenizer
from torch import Tensor

from stages.artifacts.checkpoints import Vocabulary
from stages.artifacts.ragged import Ragged
from stages.training.buckets import cut

BUDGET = {"cpu": 2_048, "cuda": 65_536}  # pieces read in one call, padding included; on a CPU what its cache holds
CALL = {"cpu": 128, "cuda": 8_192}  # pieces that cost as much as one more call does, whatever it reads


@dataclass(frozen=True)
class Padded:
    """Texts as a model reads them.

    Attributes:
        ids: [B, L] int64, special pieces included.
        lengths: [B] int64, special pieces included.
        segments: [B, L] int64: 0 up to the first separator, 1 behind it (pairs); all 0 for single texts.
    """

    ids: Tensor
    lengths: Tensor
    segments: Tensor

    def to(self, device: torch.device) -> "Padded":
        """The same texts on another device."""
        return Padded(self.ids.to(device), self.lengths.to(device), self.segments.to(device))


def tokenised(texts: list[str], tokenizer: Tokenizer) -> Ragged:
    """The pieces of texts, without special ones."""
    return Ragged.of((encoding.ids for encoding in tokenizer.encode_batch(texts, add_special_tokens=False)), np.int32)


def single(pieces: Ragged, rows: np.ndarray, vocabulary: Vocabulary, longest: int) -> Padded:
    """``[CLS] text [SEP]`` of some rows, each cut to ``longest`` pieces, special ones included."""
    text = pieces.take(rows, longest - 2)
    lengths = text.lengths + 2
    ids, columns = blank(lengths, vocabulary)
    ids[(columns >= 1) & (columns < lengths[:, None] - 1)] = text.values
    ids[np.arange(len(rows)), lengths - 1] = vocabulary.sep
    return Padded(torch.from_numpy(ids), torch.from_numpy(lengths), torch.zeros(ids.shape, dtype=torch.int64))


def lengths_of(pieces: Ragged, rows: np.ndarray, longest: int) -> np.ndarray:
    """[n] lengths of some rows cut to ``longest`` pieces."""
    lengths: np.ndarray = np.minimum(pieces.offsets[rows + 1] - pieces.offsets[rows], longest)
    return lengths


def framed_lengths(pieces: Ragged, rows: np.ndarray, longest: int) -> np.ndarray:
    """[n] lengths of some rows as `single` makes texts of them, special pieces included."""
    return lengths_of(pieces, rows, longest - 2) + 2


def chunks(lengths: np.ndarray, budget: int, device: torch.device) -> list[np.ndarray]:
    """Rows of like length together, a chunk a call.

    Args:
        budget: pieces of a chunk with their padding, at most.
        device: on which padding may cost as much as a call does, and no more.
    """
    order = np.argsort(lengths, kind="stable")
    return [order[run] for run in cut(lengths[order], budget, CALL[device.type])]


def places_in(parts: list[np.ndarray]) -> np.ndarray:
    """[rows] where each row stands when the chunks that share all rows out are put behind one another."""
    rows = np.concatenate(parts)
    places = np.empty(len(rows), dtype=np.int64)
    places[rows] = np.arange(len(rows))
    return places


def blank(lengths: np.ndarray, vocabulary: Vocabulary) -> tuple[np.ndarray, np.ndarray]:
    """[B, L] padding behind a [CLS], and the numbers of its columns."""
    ids = np.full((len(lengths), int(lengths.max(initial=1))), vocabulary.pad, dtype=np.int64)
    ids[:, 0] = vocabulary.cls
    return ids, np.arange(ids.shape[1])[None, :]
