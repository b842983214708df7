"""Texts → pieces by a backbone's own tokenizer, in flat arrays."""

from dataclasses import dataclass
from itertools import chain
from pathlib import Path

import numpy as np
from tokenizers import Tokenizer

from stages.artifacts.names import TOKENIZER
from stages.artifacts.refusal import Refusal

TEXTS = 1024  # texts that are tokenised together; the tokenizer spreads them over the processors
SEPARATOR = -1  # the word number of a separator, which no word of a text has


@dataclass(frozen=True)
class Pieces:
    """Pieces of many rows, one after the other.

    Attributes:
        ids: [pieces] int32 vocabulary ids.
        row: [pieces] int64, not decreasing.
        word: [pieces] int32, changing from word to word inside a row.
    """

    ids: np.ndarray
    row: np.ndarray
    word: np.ndarray

    def __getitem__(self, which: np.ndarray) -> "Pieces":
        return Pieces(self.ids[which], self.row[which], self.word[which])

    @property
    def starts(self) -> np.ndarray:
        """[pieces] bool: does a word begin here?"""
        changes = (np.diff(self.row) != 0) | (np.diff(self.word) != 0)
        return np.concatenate([np.ones(min(len(self.ids), 1), dtype=bool), changes])

    def lengths(self, rows: int) -> np.ndarray:
        """[rows] int64 pieces of every row."""
        return np.bincount(self.row, minlength=rows)

    def cut(self, longest: int) -> "Pieces":
        """The first ``longest`` pieces of every row."""
        first = np.searchsorted(self.row, self.row)
        return self[np.arange(len(self.row)) - first < longest]


class Splitter:
    """A tokenizer without truncation, padding or special tokens.

    A text that spells a special token ("[MASK]", "</s>") gets the pieces of its letters; where a vocabulary
    would still give the special id, the piece is left out. So no text can inject one.

    Raises:
        Refusal: the folder has no readable tokenizer.json.
    """

    def __init__(self, backbone: Path):
        self.path = backbone / TOKENIZER
        self.tokenizer = _open(self.path)
        added = self.tokenizer.get_added_tokens_decoder()
        model = self.tokenizer.model
        named = getattr(model, "unk_token", None)
        self.unknown = getattr(model, "unk_id", None) if named is None else self.tokenizer.token_to_id(named)
        special = [piece for piece, token in added.items() if token.special and piece != self.unknown]
        self.special = np.array(special, dtype=np.int32)

    @property
    def separator(self) -> int:
        """The id that the tokenizer itself puts behind a text ([SEP], </s>).

        Raises:
            Refusal: it puts none there.
        """
        alone = self.tokenizer.encode("", add_special_tokens=True).ids
        if not alone:
            raise Refusal(f"{self.path}: puts no separator behind a text")
        return int(alone[-1])

    def split(self, texts: list[str]) -> Pieces:
        """The pieces of every text, one row a text."""
        parts = [self._split(texts[start : start + TEXTS], start) for start in range(0, len(texts), TEXTS)]
        together = [np.concatenate(arrays) for arrays in zip(*parts, strict=True)]
        pieces = Pieces(*together)
        return pieces[~np.isin(pieces.ids, self.special)]

    def _split(self, texts: list[str], start: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        encodings = self.tokenizer.encode_batch(texts, add_special_tokens=False)
        rows = start + np.repeat(np.arange(len(texts)), [len(encoding) for encoding in encodings])
        ids = np.fromiter(chain.from_iterable(encoding.ids for encoding in encodings), np.int32, len(rows))
        words = np.fromiter(chain.from_iterable(encoding.word_ids for encoding in encodings), np.int32, len(rows))
        return ids, rows, words


def join(lines: Pieces, row_of_line: np.ndarray, separator: int) -> Pieces:
    """Put lines of one row behind each other with the separator between them, a word of its own.

    Args:
        lines: pieces whose rows are lines; a line without pieces gets no separator.
        row_of_line: [lines] int64, not decreasing.
    """
    row = row_of_line[lines.row]
    between = np.flatnonzero((np.diff(lines.row) != 0) & (np.diff(row) == 0)) + 1
    ids, word = np.insert(lines.ids, between, separator), np.insert(lines.word, between, SEPARATOR)
    return Pieces(ids, np.insert(row, between, row[between]), word)


def _open(path: Path) -> Tokenizer:
    if not path.is_file():
        raise Refusal(f"{path}: no such file")
    try:
        tokenizer = Tokenizer.from_file(str(path))
    except Exception as error:  # tokenizers raises nothing narrower
        raise Refusal(f"{path}: not a tokenizer: {error}") from error
    tokenizer.no_truncation()
    tokenizer.no_padding()
    tokenizer.encode_special_tokens = True
    return tokenizer
