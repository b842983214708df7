"""The words of a corpus, a few hundred thousand at a time."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa

from stages.artifacts.refusal import Refusal
from stages.artifacts.tables import Tokens

WORDS = 1 << 18  # words in a block, up to one passage more


@dataclass(frozen=True)
class Block:
    """Consecutive passages.

    Attributes:
        passage_ids: [passages].
        words: [words] int32 corpus-wide word ids, passage after passage.
        lengths: [passages] int64, summing to ``words``.
    """

    passage_ids: pa.Array
    words: np.ndarray
    lengths: np.ndarray

    @property
    def passage(self) -> np.ndarray:
        """[words] int64: the index of each word's passage in this block."""
        return np.repeat(np.arange(len(self.lengths)), self.lengths)

    def rows(self, weight: np.ndarray) -> dict[str, pa.Array]:
        """The block as rows of a Weights table, ``weight`` being [words]."""
        offsets = np.concatenate([[0], np.cumsum(self.lengths)]).astype(np.int32)
        values = pa.array(weight, pa.float32())
        return {"passage_id": self.passage_ids, "weight": pa.ListArray.from_arrays(offsets, values)}


def read_blocks(tokens: Path) -> Iterator[Block]:
    """The corpus in `Block` objects, cut in the same places at every reading.

    Raises:
        Refusal: the file is no Tokens table, has no rows, or holds a negative word id.
    """
    start = 0
    for batch in Tokens.stream(tokens, ["passage_id", "words"]):
        lists: pa.ListArray = batch.column("words")
        words, lengths = lists.flatten().to_numpy(), np.diff(lists.offsets.to_numpy()).astype(np.int64)
        _refuse_negative(words, lengths, tokens, start)
        ends = np.cumsum(lengths)
        for rows in runs(lengths, WORDS):
            first, last = ends[rows.start] - lengths[rows.start], ends[rows.stop - 1]
            ids = batch.column("passage_id").slice(rows.start, rows.stop - rows.start)
            yield Block(ids, words[first:last], lengths[rows])
        start += batch.num_rows
    if not start:
        raise Refusal(f"{tokens}: no rows")


def runs(sizes: np.ndarray, most: int) -> list[slice]:
    """Cut a sequence of sizes into runs that sum to ``most``, give or take the last member of a run."""
    begins = np.cumsum(sizes) - sizes
    cuts = np.flatnonzero(np.diff(begins // most)) + 1
    edges = [0, *cuts.tolist(), len(sizes)]
    return [slice(first, last) for first, last in pairwise(edges) if last > first]


def _refuse_negative(words: np.ndarray, lengths: np.ndarray, path: Path, start: int) -> None:
    wrong = np.flatnonzero(words < 0)
    if len(wrong):
        row = start + int(np.searchsorted(np.cumsum(lengths), wrong[0], side="right"))
        raise Refusal(f"{path}: row {row}: words holds {words[wrong[0]]}, a word id is not negative")
