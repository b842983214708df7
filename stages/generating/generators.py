"""The two families of generators behind one interface: read prompts once, then write piece by piece with a cache."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from stages.artifacts.ragged import Ragged
from stages.generating.pieces import Pieces, Side


@dataclass
class State:
    """What has been read and written so far.

    Attributes:
        cache: transformers' key-value cache.
        mask: [B, L] int64, 1 where a prompt (and, in a causal model, a written piece) is.
        encoded: [B, L, d] states of the encoder; None in a causal model.
    """

    cache: Any
    mask: Tensor
    encoded: Tensor | None = None

    def repeated(self, count: int) -> "State":
        """Every row ``count`` times, so that a prompt is read once for all its texts."""
        self.cache.batch_repeat_interleave(count)
        encoded = None if self.encoded is None else self.encoded.repeat_interleave(count, 0)
        return State(self.cache, self.mask.repeat_interleave(count, 0), encoded)

    def keep(self, rows: Tensor) -> None:
        """Forget all rows but these."""
        self.cache.batch_select_indices(rows)
        self.mask = self.mask[rows]
        self.encoded = None if self.encoded is None else self.encoded[rows]


class Generator(ABC):
    """A language model of transformers, and the ids that it speaks in.

    Attributes:
        end: the id that ends a text.
        mute: [m] ids that never stand in a text: special ones, and those that the tokenizer lacks.
        mute_first: [m'] ids with which no text begins: those, the end, and pieces from inside a word.
        cut: the side on which a prompt that is too long is cut.
    """

    cut: Side

    def __init__(self, model: Any, pieces: Pieces, device: torch.device):
        self.model = model.to(device).eval()
        self.pieces, self.device = pieces, device
        ends = self.model.config.eos_token_id
        self.end = int(ends[0] if isinstance(ends, list) else ends)
        spare = np.arange(len(pieces.known), self.model.config.vocab_size)
        mute = np.setdiff1d(np.concatenate([pieces.special(), spare]), [self.end])
        self.mute = self._tensor(mute)
        self.mute_first = self._tensor(np.concatenate([mute, pieces.inside(), [self.end]]))

    @abstractmethod
    def read(self, prompts: Ragged) -> tuple[Tensor, State]:
        """[B, V] logits of the first piece behind each prompt."""

    @abstractmethod
    def write(self, ids: Tensor, state: State) -> Tensor:
        """Append [B] ids; [B, V] logits of the piece behind them."""

    def _tensor(self, array: np.ndarray) -> Tensor:
        return torch.from_numpy(array).to(self.device)


class EncoderDecoder(Generator):
    """T5 and its kind (Raffel et al. 2020): the encoder reads the prompt, the decoder writes the text."""

    cut: Side = "right"

    def read(self, prompts: Ragged) -> tuple[Tensor, State]:
        prompts = _never_empty(prompts, self.end)
        ids = self._tensor(prompts.padded())
        mask = self._tensor((np.arange(ids.shape[1]) < prompts.lengths[:, None]).astype(np.int64))
        encoded = self.model.get_encoder()(input_ids=ids, attention_mask=mask).last_hidden_state
        start = torch.full_like(ids[:, 0], self.model.config.decoder_start_token_id)
        state = State(None, mask, encoded)
        return self.write(start, state), state

    def write(self, ids: Tensor, state: State) -> Tensor:
        out = self.model(
            encoder_outputs=(state.encoded,),
            attention_mask=state.mask,
            decoder_input_ids=ids[:, None],
            past_key_values=state.cache,
            use_cache=True,
        )
        state.cache = out.past_key_values
        logits: Tensor = out.logits[:, -1]
        return logits


class Causal(Generator):
    """GPT-2 and its kind (Radford et al. 2019): prompts are padded on the left, so that all end together."""

    cut: Side = "left"

    def read(self, prompts: Ragged) -> tuple[Tensor, State]:
        prompts = _never_empty(prompts, self.end)
        flipped = Ragged(prompts.values[::-1], prompts.offsets[-1] - prompts.offsets[::-1])  # rows and ids reversed
        ids = self._tensor(flipped.padded(self.end)[::-1, ::-1].copy())
        behind = ids.shape[1] - prompts.lengths[:, None]
        state = State(None, self._tensor((np.arange(ids.shape[1]) >= behind).astype(np.int64)))
        return self._forward(ids, state), state

    def write(self, ids: Tensor, state: State) -> Tensor:
        state.mask = torch.cat([state.mask, torch.ones_like(state.mask[:, :1])], dim=1)
        return self._forward(ids[:, None], state)

    def _forward(self, ids: Tensor, state: State) -> Tensor:
        positions = (state.mask.cumsum(1) - 1).clamp(min=0)[:, -ids.shape[1] :]
        out = self.model(
            input_ids=ids,
            attention_mask=state.mask,
            position_ids=positions,
            past_key_values=state.cache,
            use_cache=True,
            logits_to_keep=1,
        )
        state.cache = out.past_key_values
        logits: Tensor = out.logits[:, -1]
        return logits


def _never_empty(prompts: Ragged, end: int) -> Ragged:
    """An empty prompt becomes the end piece, behind which a causal model starts a text anyway."""
    empty = np.flatnonzero(prompts.lengths == 0)
    values = np.insert(prompts.values, prompts.offsets[empty], end)
    return Ragged(values, prompts.offsets + np.searchsorted(empty, np.arange(len(prompts) + 1)))
