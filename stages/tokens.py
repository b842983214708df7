"""Passages or other texts → integers, once: pieces, words, and which word a piece belongs to."""

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import pyarrow as pa
import typer

from stages.artifacts.documents import write_json
from stages.artifacts.refusal import Refusal
from stages.artifacts.tables import Passages, Table, Texts, Tokens
from stages.counting.pieces import Pieces, Splitter, join
from stages.counting.words import Lexicon
from stages.training.progress import Progress

ROWS = 4096  # rows that are numbered together


def tokens(
    texts: Annotated[Path, typer.Argument(help="Passages or Texts (Parquet).")],
    backbone: Annotated[Path, typer.Argument(help="Model folder that holds tokenizer.json.")],
    out: Annotated[Path, typer.Argument(help="Tokens to write (Parquet), without special tokens.")],
    metrics: Annotated[Path | None, typer.Option(help="Counts to write (JSON).")] = None,
    longest: Annotated[int, typer.Option(min=1, max=32_767, help="Most pieces of a row; the rest is cut off.")] = 512,
) -> None:
    """Tokenise every row with the backbone's own tokenizer.

    A passage is its title and its text; the lines of another text (generated queries) are joined by the
    tokenizer's separator. A word is what the tokenizer splits into pieces by itself, and two words have one id
    if and only if they have the same pieces.
    """
    table, rows = _table(texts)
    splitter, lexicon, summary = Splitter(backbone), Lexicon(), Summary(longest)
    separator = splitter.separator if table is Texts else -1
    with Tokens.writer(out) as writer, Progress("tokens", rows, "rows") as bar:
        for batch in _parts(table, texts):
            lines, row_of_line = _lines(table, batch)
            whole = join(splitter.split(lines), row_of_line, separator)
            pieces = whole.cut(longest)
            words = lexicon.number(pieces.ids, pieces.starts)
            writer.write(_columns(batch.column("passage_id"), pieces, words))
            summary.add(whole.lengths(batch.num_rows), pieces.ids == splitter.unknown, len(words))
            bar.advance(batch.num_rows)
    if metrics is not None:
        write_json(metrics, summary.metrics(lexicon.size))


class Summary:
    """Counts over the batches so far; lengths in a histogram, so that percentiles are exact."""

    def __init__(self, longest: int):
        self.began = time.monotonic()
        self.rows_of_length = np.zeros(longest + 1, dtype=np.int64)
        self.words = self.unknown = self.cut = 0

    def add(self, lengths: np.ndarray, unknown: np.ndarray, words: int) -> None:
        """One more batch: [rows] pieces before cutting, [pieces] bool, and the number of words."""
        longest = len(self.rows_of_length) - 1
        self.rows_of_length += np.bincount(np.minimum(lengths, longest), minlength=longest + 1)
        self.cut += int(np.count_nonzero(lengths > longest))
        self.unknown += int(np.count_nonzero(unknown))
        self.words += words

    def metrics(self, distinct: int) -> dict[str, float]:
        """What ``dvc metrics`` shows. ``speed`` (pieces per second) is the only number that a second run changes."""
        rows = int(self.rows_of_length.sum())
        pieces = int(self.rows_of_length @ np.arange(len(self.rows_of_length)))
        return {
            "passages": rows,
            "pieces": pieces,
            "words": self.words,
            "distinct_words": distinct,
            "mean_pieces": pieces / rows,
            "p99_pieces": int(np.searchsorted(np.cumsum(self.rows_of_length), 0.99 * rows)),
            "unknown_share": self.unknown / max(pieces, 1),
            "cut_share": self.cut / rows,
            "speed": round(pieces / max(time.monotonic() - self.began, 1e-9)),
        }


def _table(path: Path) -> tuple[Table, int]:
    """Which table the file is, and its number of rows."""
    try:
        table, rows = Texts, Texts.count(path)
    except Refusal:
        table, rows = Passages, Passages.count(path)
    if not rows:
        raise Refusal(f"{path}: no rows")
    return table, rows


def _parts(table: Table, path: Path) -> Iterator[pa.RecordBatch]:
    """The rows, as few together as keeps Python's strings and the tokenizer's objects small."""
    for batch in table.stream(path):
        for start in range(0, batch.num_rows, ROWS):
            yield batch.slice(start, ROWS)


def _lines(table: Table, batch: pa.RecordBatch) -> tuple[list[str], np.ndarray]:
    """The texts to tokenise, and the row that each belongs to."""
    texts: list[str] = batch.column("text").to_pylist()
    if table is Passages:
        titles = batch.column("title").to_pylist()
        lines = [[f"{title} {text}" if title else text] for title, text in zip(titles, texts, strict=True)]
    else:
        lines = [text.split("\n") for text in texts]
    return [line for row in lines for line in row], np.repeat(np.arange(len(lines)), [len(row) for row in lines])


def _columns(passage_ids: pa.Array, pieces: Pieces, words: np.ndarray) -> dict[str, Any]:
    """The rows of a Tokens table."""
    rows, starts = len(passage_ids), pieces.starts
    word_ends = np.cumsum(pieces[starts].lengths(rows))
    before = np.concatenate([[0], word_ends])[pieces.row]
    number = np.cumsum(starts) - 1 - before
    piece_ends = np.cumsum(pieces.lengths(rows))
    return {
        "passage_id": passage_ids,
        "pieces": _lists(pieces.ids, piece_ends),
        "words": _lists(words, word_ends),
        "word_of_piece": _lists(number.astype(np.int16), piece_ends),
    }


def _lists(values: np.ndarray, ends: np.ndarray) -> pa.ListArray:
    return pa.ListArray.from_arrays(np.concatenate([[0], ends]).astype(np.int32), values)
