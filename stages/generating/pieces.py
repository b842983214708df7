"""Text to the ids of a generator and back."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from tokenizers import Tokenizer

from stages.artifacts.ragged import Ragged

Side = Literal["left", "right"]


@dataclass(frozen=True)
class Pieces:
    """A tokenizer, and which of its ids a generator knows.

    Attributes:
        tokenizer: puts the special pieces around a prompt as its generator wants them.
        kept: [n] the tokenizer's id of the generator's id 0, 1, …, ascending; None where they are the same. A small
            generator leaves out what its corpus never uses, because most of its work is the vocabulary.
    """

    tokenizer: Tokenizer
    kept: np.ndarray | None = None

    def prompts(self, texts: Sequence[str], longest: int, cut: Side) -> Ragged:
        """The ids of each text, special pieces included, at most ``longest`` after cutting on one side."""
        self.tokenizer.enable_truncation(longest, direction=cut)
        return self._encode(texts, special=True)

    def whole(self, texts: Sequence[str]) -> Ragged:
        """The ids of each text, without special pieces and uncut."""
        self.tokenizer.no_truncation()
        return self._encode(texts, special=False)

    def _encode(self, texts: Sequence[str], special: bool) -> Ragged:
        self.tokenizer.no_padding()
        self.tokenizer.encode_special_tokens = True  # a text that spells [SEP] stays text where it can
        encodings = self.tokenizer.encode_batch_fast(list(texts), add_special_tokens=special)
        rows = Ragged.of((encoding.ids for encoding in encodings), np.int64)
        return rows if self.kept is None else Ragged(np.searchsorted(self.kept, rows.values), rows.offsets)

    def texts(self, rows: Iterable[np.ndarray]) -> list[str]:
        """One line for each row of ids: no special pieces, no line ends, single spaces."""
        known = self.known
        ids = [known[row].tolist() for row in rows]
        return [" ".join(text.split()) for text in self.tokenizer.decode_batch(ids, skip_special_tokens=True)]

    @property
    def known(self) -> np.ndarray:
        """The tokenizer's id of each of the generator's ids."""
        return np.arange(self.tokenizer.get_vocab_size()) if self.kept is None else self.kept

    def special(self) -> np.ndarray:
        """The generator's ids of special pieces, of which no text consists."""
        decoder = self.tokenizer.get_added_tokens_decoder()
        return np.flatnonzero(np.isin(self.known, [key for key, piece in decoder.items() if piece.special]))

    def inside(self) -> np.ndarray:
        """The generator's ids of pieces that only go on with a word (``##ing``), with which no text begins."""
        prefix = getattr(self.tokenizer.model, "continuing_subword_prefix", None)
        if not prefix:
            return np.empty(0, np.int64)
        names = map(self.tokenizer.id_to_token, self.known.tolist())
        return np.flatnonzero([name is not None and name.startswith(prefix) for name in names])
