"""Texts → vectors on disk: in batches of like length, resumable by shard, shared out among processes.

Vectors are kept under a fingerprint of the model, the texts and the settings, so that a killed run encodes only
what is missing and another command that needs the same vectors encodes nothing.
"""

import shutil
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from stages.artifacts import attention, checkpoints, heads, lastlayer, scratch
from stages.artifacts.checkpoints import TextEncoder, load_encoder, load_vocabulary
from stages.artifacts.ragged import Ragged
from stages.embedding import pieces as framing
from stages.embedding import vectors
from stages.embedding.pieces import framed_lengths
from stages.embedding.vectors import encode_rows
from stages.ranking import bags, towers
from stages.ranking.shards import Shards
from stages.training import precision as numbers
from stages.training.precision import Numbers, lowered
from stages.training.processes import Processes
from stages.training.progress import Progress

SHARD = 8_192  # rows: what is encoded and kept at once
KEPT = 3  # sets of vectors that stay for other commands; older ones make room
USED = "used"  # a mark whose time says when a set was last asked for
Reader = Callable[[np.ndarray], np.ndarray]  # rows → what is kept of them


@dataclass(frozen=True)
class Vectors:
    """[rows, d] vectors in memory-mapped shards, so that a corpus need not fit into memory.

    Attributes:
        size: rows of every shard but the last.
        tokens: real pieces encoded, special ones included.
        seconds: what encoding them took, on all processes together.
        fresh: how many shards were encoded now rather than found.
    """

    shards: list[np.ndarray]
    tokens: int = 0
    seconds: float = 0.0
    fresh: int = 0
    size: int = SHARD

    def __len__(self) -> int:
        return sum(len(shard) for shard in self.shards)

    @property
    def bytes(self) -> int:
        """What all vectors take."""
        return sum(shard.nbytes for shard in self.shards)

    @property
    def numbers(self) -> int:
        """Numbers of a vector that a product multiplies."""
        return int(self.shards[0].shape[1])

    @property
    def speed(self) -> float:
        """Real tokens per second of one process."""
        return self.tokens / self.seconds if self.seconds else 0.0

    def blocks(self, rows: int) -> Iterator[tuple[int, np.ndarray]]:
        """Yield (first row, [≤ rows, d] float32) over all rows."""
        per_block, start = max(1, rows // self.size), 0
        for first in range(0, len(self.shards), per_block):
            block = np.concatenate(self.shards[first : first + per_block])
            yield start, block
            start += len(block)

    def take(self, rows: np.ndarray) -> np.ndarray:
        """[n, d] float32 of the rows asked for, in that order."""
        out = np.empty((len(rows), self.shards[0].shape[1]), dtype=np.float32)
        order = np.argsort(rows, kind="stable")
        edges = np.searchsorted(rows[order], np.arange(len(self.shards) + 1) * self.size)
        for shard, begin, end in zip(self.shards, edges[:-1], edges[1:], strict=True):
            if end > begin:
                out[order[begin:end]] = shard[rows[order[begin:end]] % self.size]
        return out

    def products(self, queries: np.ndarray, rows: np.ndarray) -> np.ndarray:
        """[n, k] float64 products of each of n queries [n, d] with its own rows [n, k]."""
        vectors = self.take(rows.ravel()).reshape(*rows.shape, -1).astype(np.float64)
        found: np.ndarray = np.matmul(vectors, queries.astype(np.float64)[:, :, None])[:, :, 0]
        return found

    @staticmethod
    def of(rows: np.ndarray, size: int = SHARD) -> "Vectors":
        """From vectors in memory."""
        return Vectors([rows[start : start + size] for start in range(0, len(rows), size)], size=size)


@dataclass(frozen=True)
class Wanted:
    """Texts whose vectors are asked for.

    Attributes:
        pieces: the texts, without special pieces.
        content: a hash of them (`scratch.content_hash` of their file, say).
        longest: pieces to which a text is cut, special ones included.
        what: what the progress bar says.
    """

    pieces: Ragged
    content: str
    longest: int
    what: str = "encode"

    @property
    def shards(self) -> range:
        """The numbers of all shards."""
        return range(-(-len(self.pieces) // SHARD))

    def rows(self, shard: int) -> np.ndarray:
        """The rows of a shard."""
        return np.arange(shard * SHARD, min((shard + 1) * SHARD, len(self.pieces)))

    def lengths(self, rows: np.ndarray) -> np.ndarray:
        """[n] real pieces of some rows, special ones included."""
        return framed_lengths(self.pieces, rows, self.longest)

    def tokens(self, rows: np.ndarray) -> int:
        """Real pieces of some rows together, special ones included."""
        return int(self.lengths(rows).sum())


def encode(model: Path | str, wanted: Wanted, precision: Numbers, processes: Processes) -> Vectors:
    """The vectors of all texts by the encoder in a model folder.

    Args:
        precision: of the products; kept is float32 in any case.

    Returns:
        The vectors in the order of the rows, on every process.
    """

    def reader() -> Reader:
        encoder = for_inference(model, precision, processes.device).vectors_only()
        vocabulary = load_vocabulary(model)
        return lambda rows: encode_rows(encoder, wanted.pieces, rows, vocabulary, wanted.longest)

    return kept_vectors(vectors_folder(model, wanted, precision, __file__), wanted, processes, reader)


def kept_vectors(folder: Path, wanted: Wanted, processes: Processes, reader: Callable[[], Reader]) -> Vectors:
    """The shards that are in a folder, and those that ``reader()`` makes of the rows that are missing; see `encode`."""
    shards, numbers = Shards(folder), wanted.shards
    missing = [number for number in numbers[processes.rank :: processes.world] if not shards.has(number)]
    if missing:
        _encode_shards(wanted, shards, missing, reader())
    processes.wait()
    (folder / USED).touch()
    if processes.first:
        make_room(folder)
    return Vectors([shards.load(number) for number in numbers], *shards.spent(), len(missing), SHARD)


def vectors_folder(model: Path | str, wanted: Wanted, precision: Numbers, maker: str) -> Path:
    """Where the vectors of these texts by this model are kept; made if absent.

    Args:
        maker: the file whose code makes them: another's vectors, or those of its older self, are others.
    """
    modules = attention, bags, checkpoints, heads, framing, lastlayer, numbers, towers, vectors
    files = (maker, __file__, *(str(module.__file__) for module in modules))
    program = "".join(scratch.content_hash(Path(file)) for file in files)
    settings = {"texts": wanted.content, "longest": wanted.longest, "precision": precision, "shard": SHARD}
    folder = scratch.home() / f"vectors-{scratch.fingerprint(settings, towers.passage_parts(model), program)}"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def make_room(newest: Path) -> None:
    """Forget all but the `KEPT` most recently used sets of vectors."""
    used = [mark.parent for mark in newest.parent.glob(f"vectors-*/{USED}") if mark.parent != newest]
    for old in sorted(used, key=lambda folder: (folder / USED).stat().st_mtime, reverse=True)[KEPT - 1 :]:
        shutil.rmtree(old, ignore_errors=True)  # a reader that has mapped it keeps its pages


def for_inference(model: Path | str, precision: Numbers, device: torch.device) -> TextEncoder:
    """The encoder of a folder, which reads in a precision."""
    encoder = load_encoder(model)
    lowered(encoder.transformer, precision, device)
    return encoder.to(device).eval()


def _encode_shards(wanted: Wanted, shards: Shards, numbers: list[int], read: Reader) -> None:
    with Progress(wanted.what, sum(len(wanted.rows(number)) for number in numbers), "texts") as bar:
        for number in numbers:
            began, rows = time.monotonic(), wanted.rows(number)
            made = read(rows)
            tokens, seconds = wanted.tokens(rows), time.monotonic() - began
            shards.save(number, made, tokens, seconds)
            bar.advance(len(rows), f"{tokens / seconds:,.0f} tokens/s")
