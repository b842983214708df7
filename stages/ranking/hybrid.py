"""Passages as a short dense vector and the largest values of a bag, searched exactly (DupMAE, section 3.3).

The score is ĥq·ĥd + Σ over d's kept pieces of μq·μd: the product of two vectors of d′ + V numbers, of which a passage
keeps d′ + k. On disk and in memory only these lie; a block of passages at a time is written out in full, because a
dense product over a block is faster than a sparse one, on a CPU already and on a GPU by far.
"""

import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from stages.artifacts.checkpoints import Vocabulary, load_vocabulary
from stages.artifacts.documents import read_json
from stages.artifacts.names import CONFIG
from stages.embedding.pieces import BUDGET, chunks, single
from stages.ranking.encoding import SHARD, Vectors, Wanted, kept_vectors, vectors_folder
from stages.ranking.towers import Towers, load_for_inference
from stages.training.precision import Numbers
from stages.training.processes import Processes

BLOCK, QUERIES = 1_024, 1_024  # passages and queries that are written out in full at once


@dataclass(frozen=True)
class HybridVectors(Vectors):
    """Passages of d′ dense values and k pieces with their values, in structured shards.

    Attributes:
        vocabulary: V, the pieces of a whole bag.
    """

    vocabulary: int = 0

    @property
    def dense(self) -> int:
        """d′."""
        return int(self.shards[0].dtype["dense"].shape[0])

    @property
    def numbers(self) -> int:
        """d′ + k."""
        return self.dense + int(self.shards[0].dtype["piece"].shape[0])

    def blocks(self, rows: int) -> Iterator[tuple[int, np.ndarray]]:
        """Yield (first row, [≤ rows, d′ + V] float32) over all rows."""
        for number, shard in enumerate(self.shards):
            for start in range(0, len(shard), rows):
                yield number * self.size + start, self._full(shard[start : start + rows])

    def products(self, queries: np.ndarray, rows: np.ndarray) -> np.ndarray:
        """[n, m] float64 products of n queries [n, d′ + V] with their own passages [n, m]."""
        out = np.empty(rows.shape, dtype=np.float64)
        for i, query in enumerate(queries.astype(np.float64)):
            some = self.records(rows[i])
            out[i] = some["dense"].astype(np.float64) @ query[: self.dense]
            out[i] += (some["value"].astype(np.float64) * query[self.dense + some["piece"].astype(np.int64)]).sum(1)
        return out

    def take(self, rows: np.ndarray) -> np.ndarray:
        """[n, d′ + V] float32 of the rows asked for, in that order."""
        return self._full(self.records(rows))

    def records(self, rows: np.ndarray) -> np.ndarray:
        """[n] records of the rows asked for, in that order."""
        out = np.empty(len(rows), dtype=self.shards[0].dtype)
        for number in np.unique(rows // self.size):
            here = rows // self.size == number
            out[here] = self.shards[number][rows[here] % self.size]
        return out

    def _full(self, some: np.ndarray) -> np.ndarray:
        out = np.zeros((len(some), self.dense + self.vocabulary), dtype=np.float32)
        out[:, : self.dense] = some["dense"]
        np.put_along_axis(out, self.dense + some["piece"].astype(np.int64), some["value"], axis=1)
        return out


def encode_hybrid(model: Path, wanted: Wanted, precision: Numbers, processes: Processes) -> HybridVectors:
    """As `encoding.encode`, by a retriever whose folder has a bag."""

    def reader() -> "Passages":
        towers = load_for_inference(model, precision, processes.device)
        return Passages(towers, wanted, load_vocabulary(model))

    vectors = kept_vectors(vectors_folder(model, wanted, precision, __file__), wanted, processes, reader)
    size = read_json(model / CONFIG)["vocab_size"]
    return HybridVectors(vectors.shards, vectors.tokens, vectors.seconds, vectors.fresh, SHARD, size)


@dataclass(frozen=True)
class Passages:
    """Makes records of rows of passages."""

    towers: Towers
    wanted: Wanted
    vocabulary: Vocabulary

    def __call__(self, rows: np.ndarray) -> np.ndarray:
        """[n] records: ``dense`` [d′], ``piece`` [k] ascending, ``value`` [k]."""
        bag = self.towers.bag
        assert bag is not None
        piece = np.dtype(np.uint16 if len(bag.weight) <= 2**16 else np.int32)
        dense = self.towers.dense_width
        fields = [("dense", "f4", (dense,)), ("piece", piece, (bag.kept,)), ("value", "f4", (bag.kept,))]
        out = np.empty(len(rows), fields)
        for chunk, vectors in encoded(self.towers, self.wanted, rows, self.vocabulary, asks=False):
            whole = vectors[:, dense:]
            best = whole.abs().topk(bag.kept, dim=1).indices.sort(dim=1).values  # what is not kept is zero
            out["dense"][chunk] = vectors[:, :dense].cpu().numpy()
            out["piece"][chunk] = best.cpu().numpy()
            out["value"][chunk] = whole.gather(1, best).cpu().numpy()
        return out


class Questions:
    """Queries with their whole bags, encoded when they are needed: kept, they would outweigh the index."""

    def __init__(self, model: Path, wanted: Wanted, precision: Numbers, processes: Processes):
        self.model, self.wanted = model, wanted
        self.precision, self.device = precision, processes.device
        self.tokens, self.seconds = 0, 0.0

    def __len__(self) -> int:
        return len(self.wanted.pieces)

    @property
    def speed(self) -> float:
        """Real tokens per second."""
        return self.tokens / self.seconds if self.seconds else 0.0

    def blocks(self, rows: int) -> Iterator[tuple[int, np.ndarray]]:
        """Yield (first row, [≤ rows, d′ + V] float32) over all queries."""
        towers, vocabulary = load_for_inference(self.model, self.precision, self.device), load_vocabulary(self.model)
        for start in range(0, len(self), rows):
            began, some = time.monotonic(), np.arange(start, min(start + rows, len(self)))
            block = np.empty((len(some), towers.width), dtype=np.float32)
            for chunk, vectors in encoded(towers, self.wanted, some, vocabulary, asks=True):
                block[chunk] = vectors.cpu().numpy()
            self.tokens += self.wanted.tokens(some)
            self.seconds += time.monotonic() - began
            yield start, block


@torch.inference_mode()
def encoded(
    towers: Towers, wanted: Wanted, rows: np.ndarray, vocabulary: Vocabulary, asks: bool
) -> Iterator[tuple[np.ndarray, torch.Tensor]]:
    """Yield (places among ``rows``, their [n, d′ + V] float32 vectors) in batches of like length."""
    device = next(towers.parameters()).device
    for chunk in chunks(wanted.lengths(rows), BUDGET[device.type], device):
        yield chunk, towers(single(wanted.pieces, rows[chunk], vocabulary, wanted.longest).to(device), asks)
