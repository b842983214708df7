"""Exact top-k by inner product, streaming over queries and passages.

Faiss (or torch, where there is no Faiss) proposes candidates block by block; the candidates' scores are then
computed again as float64 products rounded to float32. So equal vectors score equally, whatever block or backend
they passed through, and a run is in a total order: score descending, then passage_id ascending. Where more
passages than the margin lie within rounding of the last place, those queries are scanned in full. What is
guaranteed is therefore the top k of the rounded float64 scores, ties at the cut included, as long as the
backend's float32 products err by less than `ROUNDING`.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from importlib.util import find_spec
from typing import Any, Protocol

import numpy as np
import torch

from stages.ranking.encoding import Vectors

ROUNDING = 2e-6  # error of a float32 inner product, in units of |q| |p|
QUERIES, PASSAGES = 8_192, 65_536  # rows of a block
SCANNED = 256  # queries compared with a block of passages in full, where a cut is unsure
GPU_DEPTH = 2_048  # what Faiss finds on a GPU, at most
GATHERED = 2**20  # numbers gathered at once for rescoring: what a CPU's cache holds

Found = tuple[np.ndarray, np.ndarray]
TopK = Callable[[np.ndarray, np.ndarray, int], Found]  # queries, passages, k → scores, rows


class Queried(Protocol):
    """Queries as vectors: kept, or made when they are needed."""

    def __len__(self) -> int: ...

    def blocks(self, rows: int) -> Iterator[tuple[int, np.ndarray]]:
        """Yield (first row, [≤ rows, d] float32) over all rows."""
        ...

    @property
    def speed(self) -> float:
        """Real tokens encoded per second."""
        ...


@dataclass(frozen=True)
class Index:
    """A corpus to search.

    Attributes:
        passages: its vectors.
        order: [passages] the place of each passage's id among the sorted ids: decides ties.
        top: the backend, `faiss_top` or `torch_top`.
        block: passages compared at once.
    """

    passages: Vectors
    order: np.ndarray
    top: TopK
    block: int = PASSAGES

    def search(
        self, queries: Queried, depth: int, block: int = QUERIES
    ) -> Iterator[tuple[int, np.ndarray, np.ndarray]]:
        """Yield (first query, rows [n, depth], scores [n, depth] float32) by blocks of queries.

        Memory grows with the blocks and the depth, not with the numbers of queries and passages; the depth is
        the corpus's size where that is smaller.
        """
        depth = min(depth, len(self.passages))
        wanted = min(depth + margin(depth), len(self.passages))
        for start, some in queries.blocks(block):
            candidates, longest = self._proposed(some, wanted)
            step = max(1, GATHERED // (wanted * some.shape[1]))
            parts = [self._exact(some[i : i + step], candidates[i : i + step]) for i in range(0, len(some), step)]
            rows, scores = self._sorted(candidates, np.concatenate(parts))
            slack = 2 * ROUNDING * longest * np.linalg.norm(some, axis=1)
            unsure = scores[:, -1] >= scores[:, depth - 1] - slack if wanted < len(self.passages) else slack < 0
            for query, found in self._scanned(some, np.flatnonzero(unsure), scores[:, depth - 1] - slack):
                rows[query, :depth], scores[query, :depth] = found[0][0, :depth], found[1][0, :depth]
            yield start, rows[:, :depth], scores[:, :depth]

    def _proposed(self, queries: np.ndarray, k: int) -> tuple[np.ndarray, float]:
        """[n, k] best rows by float32 scores, merged over blocks, and the length of the longest passage vector."""
        scores, rows = np.empty((len(queries), 0), dtype=np.float32), np.empty((len(queries), 0), dtype=np.int64)
        longest = 0.0
        for start, block in self.passages.blocks(self.block):
            longest = max(longest, float(np.einsum("nd,nd->n", block, block).max()))
            found = self.top(queries, block, min(k, len(block)))
            scores, rows = np.hstack([scores, found[0]]), np.hstack([rows, found[1] + start])
            if scores.shape[1] > k:
                kept = np.argpartition(-scores, k - 1, axis=1)[:, :k]
                scores, rows = np.take_along_axis(scores, kept, 1), np.take_along_axis(rows, kept, 1)
        return rows, float(np.sqrt(longest))

    def _exact(self, queries: np.ndarray, rows: np.ndarray) -> np.ndarray:
        """[n, k] float32: float64 products of each query with its own rows [n, k]."""
        return self.passages.products(queries, rows).astype(np.float32)

    def _sorted(self, rows: np.ndarray, scores: np.ndarray) -> Found:
        """Rows and scores of each query in the total order."""
        places = np.lexsort((self.order[rows], -scores), axis=1)
        return np.take_along_axis(rows, places, 1), np.take_along_axis(scores, places, 1)

    def _scanned(self, queries: np.ndarray, unsure: np.ndarray, floors: np.ndarray) -> Iterator[tuple[int, Found]]:
        """Yield (query, its [1, n] rows and scores in order) with all passages that may score its floor or more."""
        for some in (unsure[i : i + SCANNED] for i in range(0, len(unsure), SCANNED)):
            places, found = [], []
            for start, block in self.passages.blocks(self.block):
                place, row = np.nonzero(queries[some] @ block.T >= floors[some, None])
                places.append(place)
                found.append(start + row)
            place, row = np.concatenate(places), np.concatenate(found)
            for i, query in enumerate(some):
                rows = row[place == i][None]
                yield query, self._sorted(rows, self._exact(queries[[query]], rows))


def margin(depth: int) -> int:
    """Candidates beyond the depth: room for what float32 products put on the wrong side of the cut."""
    return 16 + depth // 16


def best_backend() -> TopK:
    """Faiss where it is installed, but torch where it alone has the GPU."""
    if not find_spec("faiss"):
        return torch_top
    return torch_top if torch.cuda.is_available() and not faiss_gpus() else faiss_top


def faiss_gpus() -> int:
    """On how many GPUs the installed Faiss can search."""
    import faiss  # after torch, which this module imports first: both bring an OpenMP runtime

    return int(faiss.get_num_gpus()) if hasattr(faiss, "StandardGpuResources") else 0


def faiss_top(queries: np.ndarray, passages: np.ndarray, k: int) -> Found:
    """Top k by Faiss's exhaustive search."""
    import faiss

    if not faiss_gpus():
        scores, rows = faiss.knn(queries, passages, k, metric=faiss.METRIC_INNER_PRODUCT)
    elif k <= GPU_DEPTH:
        scores, rows = faiss.knn_gpu(_memory(), queries, passages, k, metric=faiss.METRIC_INNER_PRODUCT)
    else:
        scores, rows = torch_top(queries, passages, k)
    return scores, rows


@lru_cache(maxsize=1)
def _memory() -> Any:
    """Faiss's memory on the GPU, taken once: making it costs more than a block's product."""
    import faiss

    torch.cuda.empty_cache()  # what torch has used and keeps, Faiss cannot have
    return faiss.StandardGpuResources()


def torch_top(queries: np.ndarray, passages: np.ndarray, k: int) -> Found:
    """Top k by one matrix product and a partial sort, on the GPU where there is one."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    right = torch.from_numpy(passages).to(device)
    parts = []
    for start in range(0, len(queries), 1_024):
        products = torch.from_numpy(queries[start : start + 1_024]).to(device) @ right.T
        parts.append([part.cpu().numpy() for part in torch.topk(products, k, sorted=False)])
    scores, rows = (np.concatenate(column) for column in zip(*parts, strict=True))
    return scores, rows
