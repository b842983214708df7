"""Which text a view looks at: a stretch of the corpus, found from the passage's row.

Passages lie behind one another in document order, so a stretch is two numbers into the flat pieces.
"""

from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from stages.artifacts.ragged import Ragged, read_ragged
from stages.artifacts.refusal import Refusal
from stages.artifacts.tables import Passages, Tokens, Weights

CHUNK = 1 << 24  # pieces looked at in one go


@dataclass(frozen=True)
class Pieces:
    """A Tokens table in flat arrays.

    Attributes:
        pieces: row → ids.
        word_of_piece: [total] the word of every piece, counted within its row.
        word_offsets: [rows + 1] where each row's words begin among all words.
    """

    pieces: Ragged
    word_of_piece: np.ndarray
    word_offsets: np.ndarray

    @staticmethod
    def read(path: Path | str) -> "Pieces":
        """From a Tokens file, without reading it into memory."""
        words = read_ragged(Tokens, path, "words")
        pieces, word_of_piece = (read_ragged(Tokens, path, name) for name in ("pieces", "word_of_piece"))
        return Pieces(pieces, word_of_piece.values, words.offsets)

    def words(self, places: np.ndarray) -> np.ndarray:
        """The word of each place [B, L] among the flat pieces, counted over the whole table; places rise in a row."""
        offsets = self.pieces.offsets
        first, last = (np.searchsorted(offsets, places[:, [edge]], side="right") - 1 for edge in (0, -1))
        inside = np.array_equal(first, last)  # a stretch seldom leaves its passage, and looking up few is quicker
        rows = first if inside else np.searchsorted(offsets, places, side="right") - 1
        words: np.ndarray = self.word_offsets[rows] + np.asarray(self.word_of_piece).take(places)
        return words


@dataclass(frozen=True)
class Corpus:
    """Everything that views may look at, row i of it all being about passage i.

    Attributes:
        passages: the corpus itself.
        documents: [rows] int32, equal where two passages are of one document.
        weights: name → [words] float32, a weight for every word of ``passages``.
        texts: name → what was generated for the passages, and [rows] its row there, -1 where there is none.
    """

    passages: Pieces
    documents: np.ndarray
    weights: dict[str, np.ndarray] = field(default_factory=dict)
    texts: dict[str, tuple[Pieces, np.ndarray]] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.passages.pieces)

    def counts(self, size: int) -> np.ndarray:
        """[size] int64: how often each piece of the vocabulary occurs in all texts together."""
        counts = np.zeros(size, dtype=np.int64)
        for source in (self.passages, *(pieces for pieces, _ in self.texts.values())):
            for start in range(0, len(source.pieces.values), CHUNK):
                counts += np.bincount(source.pieces.values[start : start + CHUNK], minlength=size)
        return counts


@dataclass(frozen=True)
class Stretch:
    """[B] stretches of one table: where each starts among the flat pieces, and its length; 0 is no text."""

    source: Pieces
    starts: np.ndarray
    lengths: np.ndarray
    weighted: bool  # whether the word weights speak of this table

    def only(self, rows: np.ndarray) -> "Stretch":
        """The same stretches, with no text where ``rows`` [B] is false."""
        return Stretch(self.source, self.starts, np.where(rows, self.lengths, 0), self.weighted)


def passage(corpus: Corpus, rows: np.ndarray, longest: int, noise: np.ndarray) -> Stretch:
    """The passage itself, its head where it is too long."""
    return _whole(corpus.passages, rows, longest)


def window(corpus: Corpus, rows: np.ndarray, longest: int, noise: np.ndarray) -> Stretch:
    """A random window of the passage where it is too long (MASTER's released code)."""
    offsets, lengths = corpus.passages.pieces.offsets[rows], corpus.passages.pieces.lengths[rows]
    spare = np.maximum(lengths - longest, 0)
    return Stretch(corpus.passages, offsets + (noise * (spare + 1)).astype(np.int64), lengths - spare, True)


def first_half(corpus: Corpus, rows: np.ndarray, longest: int, noise: np.ndarray) -> Stretch:
    """The first half of `window`'s window (MASTER's released code)."""
    whole = window(corpus, rows, longest, noise)
    return Stretch(whole.source, whole.starts, whole.lengths // 2, True)


def second_half(corpus: Corpus, rows: np.ndarray, longest: int, noise: np.ndarray) -> Stretch:
    """What `first_half` leaves of the window."""
    whole = window(corpus, rows, longest, noise)
    half = whole.lengths // 2
    return Stretch(whole.source, whole.starts + half, whole.lengths - half, True)


def following(corpus: Corpus, rows: np.ndarray, longest: int, noise: np.ndarray) -> Stretch:
    """The next passage of the same document (MASTER, section 4.2); none behind a document's last."""
    return _beside(corpus, rows, 1, longest)


def adjacent(corpus: Corpus, rows: np.ndarray, longest: int, noise: np.ndarray) -> Stretch:
    """The next passage of the same document, or the one before."""
    after, before = _beside(corpus, rows, 1, longest), _beside(corpus, rows, -1, longest)
    last = after.lengths == 0
    return Stretch(
        corpus.passages,
        np.where(last, before.starts, after.starts),
        np.where(last, before.lengths, after.lengths),
        True,
    )


def sibling(corpus: Corpus, rows: np.ndarray, longest: int, noise: np.ndarray) -> Stretch:
    """Another passage of the same document, each alike (coCondenser; CoT-MAE's random context)."""
    first = np.searchsorted(corpus.documents, corpus.documents[rows])
    count = np.searchsorted(corpus.documents, corpus.documents[rows], side="right") - first
    others = np.maximum(count - 1, 1)
    step = 1 + np.minimum((noise * others).astype(np.int64), others - 1)
    other = _whole(corpus.passages, first + (rows - first + step) % count, longest)
    return Stretch(other.source, other.starts, np.where(count > 1, other.lengths, 0), True)


def overlapping(corpus: Corpus, rows: np.ndarray, longest: int, noise: np.ndarray) -> Stretch:
    """From the middle of the passage into the next one, as long as the passage (CoT-MAE's overlap context)."""
    own = _whole(corpus.passages, rows, longest)
    after = _beside(corpus, rows, 1, longest)
    ends = corpus.passages.pieces.offsets[rows + 1]
    half = own.lengths // 2
    reach = np.minimum(own.lengths - half, after.lengths)  # as far into the next as the half that was left out
    return Stretch(corpus.passages, ends - half, np.where(after.lengths > 0, half + reach, 0), True)


def context(corpus: Corpus, rows: np.ndarray, longest: int, noise: np.ndarray) -> Stretch:
    """Random, adjacent or overlapping context, each alike (CoT-MAE, section 3.1)."""
    kind, inner = (noise * 3).astype(np.int64), noise * 3 % 1
    options = [one(corpus, rows, longest, inner) for one in (sibling, adjacent, overlapping)]
    return Stretch(
        corpus.passages,
        np.choose(kind, [option.starts for option in options]),
        np.choose(kind, [option.lengths for option in options]),
        True,
    )


def queries(corpus: Corpus, rows: np.ndarray, longest: int, noise: np.ndarray) -> Stretch:
    """The queries that doc2query asks of the passage."""
    return _generated(corpus, "queries", rows, longest)


def continuations(corpus: Corpus, rows: np.ndarray, longest: int, noise: np.ndarray) -> Stretch:
    """How a language model goes on after the passage."""
    return _generated(corpus, "continuations", rows, longest)


TEXTS = {
    "passage": passage,
    "window": window,
    "first-half": first_half,
    "second-half": second_half,
    "next": following,
    "adjacent": adjacent,
    "sibling": sibling,
    "overlap": overlapping,
    "context": context,
    "queries": queries,
    "continuations": continuations,
}
GENERATED = ("queries", "continuations")


def read_corpus(passages: Path, tokens: Path, beside: dict[str, Path]) -> Corpus:
    """The corpus and what the recipe needs beside it.

    Args:
        beside: name → Tokens table where the name is one of `GENERATED`, else Weights table.

    Raises:
        Refusal: a file does not speak of the same passages, or of the same words.
    """
    ids = _ids(tokens)
    columns = Passages.read(passages, ["passage_id", "document_id"])
    if not columns["passage_id"].combine_chunks().equals(ids):
        raise Refusal(f"{tokens}: its passages are not those of {passages}")
    codes = pc.run_end_encode(columns["document_id"].combine_chunks(), run_end_type=pa.int32())
    ends = codes.run_ends.to_numpy()
    documents = np.repeat(np.arange(len(ends), dtype=np.int32), np.diff(ends, prepend=0))
    own = Pieces.read(tokens)
    return Corpus(
        own,
        documents,
        {name: _weights(path, own, tokens) for name, path in beside.items() if name not in GENERATED},
        {name: (Pieces.read(path), _rows(ids, _ids(path), path)) for name, path in beside.items() if name in GENERATED},
    )


def _ids(path: Path) -> pa.Array:
    return Tokens.read(path, ["passage_id"])["passage_id"].combine_chunks()


def _rows(ids: pa.Array, of: pa.Array, path: Path) -> np.ndarray:
    if not pc.all(pc.is_in(of, value_set=ids)).as_py():
        raise Refusal(f"{path}: a passage_id is not in the corpus")
    rows: np.ndarray = pc.fill_null(pc.index_in(ids, value_set=of), -1).to_numpy(zero_copy_only=False).astype(np.int64)
    return rows


def _weights(path: Path, own: Pieces, tokens: Path) -> np.ndarray:
    ragged = read_ragged(Weights, path, "weight")
    if not np.array_equal(ragged.offsets, own.word_offsets):
        raise Refusal(f"{path}: its words are not those of {tokens}")
    return ragged.values


def _whole(source: Pieces, rows: np.ndarray, longest: int) -> Stretch:
    starts = source.pieces.offsets[rows]
    return Stretch(source, starts, np.minimum(source.pieces.offsets[rows + 1] - starts, longest), True)


def _beside(corpus: Corpus, rows: np.ndarray, step: int, longest: int) -> Stretch:
    inside = np.clip(rows + step, 0, len(corpus) - 1)
    there = (inside == rows + step) & (corpus.documents[inside] == corpus.documents[rows])
    other = _whole(corpus.passages, inside, longest)
    return Stretch(other.source, other.starts, np.where(there, other.lengths, 0), True)


def _generated(corpus: Corpus, name: str, rows: np.ndarray, longest: int) -> Stretch:
    source, row_of = corpus.texts[name]
    there = row_of[rows]
    text = _whole(source, np.maximum(there, 0), longest) if len(source.pieces) else None
    if text is None:
        return Stretch(source, np.zeros_like(rows), np.zeros_like(rows), False)
    return Stretch(source, text.starts, np.where(there >= 0, text.lengths, 0), False)
