"""Exact top-k by inner product, streaming over queries and passages.

Faiss (or torch, where there is no Faiss) proposes candidates block by block; the candidates' scores are then
computed again as float64 products rounded to float32. So equal vectors score equally, whatever block or backend
they passed through, and a run is in a total order: score descending, then passage_id ascending. Where more
passages than the `MARGIN` lie within rounding of the last place, that query is scanned in full.
"""

from collections.abc import Callable, Iterator

import numpy as np
import torch

from stages.ranking.encoding import Vectors

MARGIN = 16  # candidates beyond the depth: room for the rounding of float32 products
ROUNDING = 4e-6  # of |q| |p|: bound on the error of a float32 inner product
QUERIES, PASSAGES = 8_192, 65_536  # rows of a block
RESCORED = 2**25  # numbers gathered at once for rescoring

Found = tuple[np.ndarray, np.ndarray]
TopK = Callable[[np.ndarray, np.ndarray, int], Found]  # queries, passages, k → scores, rows


def search(
    queries: Vectors,
    passages: Vectors,
    order: np.ndarray,
    depth: int,
    top: TopK | None = None,
    query_block: int = QUERIES,
    passage_block: int = PASSAGES,
) -> Iterator[tuple[int, np.ndarray, np.ndarray]]:
    """Yield (first query, rows [n, depth], scores [n, depth] float32) by blocks of queries.

    Memory grows with the blocks and the depth, not with the numbers of queries and passages.

    Args:
        order: [passages] the place of each passage's id among the sorted ids: decides ties.
        depth: passages per query; fewer where the corpus is smaller.
        top: the backend, `faiss_top` or `torch_top`; None takes Faiss where it is installed.
    """
    top = top or best_backend()
    depth = min(depth, len(passages))
    for start, block in queries.blocks(query_block):
        _, candidates = _propose(block, passages, min(depth + MARGIN, len(passages)), top, passage_block)
        step = max(1, RESCORED // (candidates.shape[1] * block.shape[1]))
        parts = [
            _settle(block[i : i + step], candidates[i : i + step], passages, order, depth, passage_block)
            for i in range(0, len(block), step)
        ]
        rows, scores = (np.concatenate([part[i] for part in parts]) for i in (0, 1))
        yield start, rows, scores


def exact_scores(queries: np.ndarray, rows: np.ndarray, passages: Vectors) -> np.ndarray:
    """[n, k] float32: float64 products of each query with its own rows [n, k]."""
    vectors = passages.take(rows.ravel()).reshape(*rows.shape, -1).astype(np.float64)
    scores: np.ndarray = np.matmul(vectors, queries.astype(np.float64)[:, :, None])[:, :, 0].astype(np.float32)
    return scores


def best_backend() -> TopK:
    """Faiss where it is installed (on the GPU where it has one), else torch."""
    try:
        import faiss  # noqa: F401
    except ModuleNotFoundError:
        return torch_top
    return faiss_top


def faiss_top(queries: np.ndarray, passages: np.ndarray, k: int) -> Found:
    """Top k by Faiss's exhaustive search."""
    import faiss  # after torch, which this module imports first: both bring an OpenMP runtime

    if hasattr(faiss, "StandardGpuResources") and faiss.get_num_gpus() and k <= 2048:
        return faiss.knn_gpu(faiss.StandardGpuResources(), queries, passages, k, metric=faiss.METRIC_INNER_PRODUCT)
    return faiss.knn(queries, passages, k, metric=faiss.METRIC_INNER_PRODUCT)


def torch_top(queries: np.ndarray, passages: np.ndarray, k: int) -> Found:
    """Top k by one matrix product and a partial sort, on the GPU where there is one."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    right = torch.from_numpy(passages).to(device)
    parts = []
    for rows in torch.split(torch.from_numpy(queries), 1_024):
        parts.append([part.cpu().numpy() for part in torch.topk(rows.to(device) @ right.T, k, sorted=False)])
    scores, found = (np.concatenate(column) for column in zip(*parts, strict=True))
    return scores, found


def _propose(queries: np.ndarray, passages: Vectors, k: int, top: TopK, passage_block: int) -> Found:
    """The k best rows by float32 scores, merged over blocks of passages."""
    best = np.empty((len(queries), 0), dtype=np.float32), np.empty((len(queries), 0), dtype=np.int64)
    for start, block in passages.blocks(passage_block):
        scores, rows = top(queries, block, min(k, len(block)))
        scores, rows = np.hstack([best[0], scores]), np.hstack([best[1], rows + start])
        if scores.shape[1] > k:
            kept = np.argpartition(-scores, k - 1, axis=1)[:, :k]
            scores, rows = np.take_along_axis(scores, kept, 1), np.take_along_axis(rows, kept, 1)
        best = scores, rows
    return best


def _settle(
    queries: np.ndarray, candidates: np.ndarray, passages: Vectors, order: np.ndarray, depth: int, passage_block: int
) -> Found:
    """Rescore, sort by the total order, cut; scan again where the cut fell among scores too close to tell."""
    scores = exact_scores(queries, candidates, passages)
    rows, scores = _sorted(candidates, scores, order)
    if candidates.shape[1] < len(passages):
        lengths = np.linalg.norm(queries, axis=1) * max(1.0, float(np.abs(scores).max()))
        slack = ROUNDING * np.maximum(lengths, 1e-30)
        for i in np.flatnonzero(scores[:, -1] >= scores[:, depth - 1] - 2 * slack):
            near = _at_least(queries[i], scores[i, depth - 1] - slack[i], passages, passage_block)
            found = _sorted(near[None], exact_scores(queries[i : i + 1], near[None], passages), order)
            rows[i, :depth], scores[i, :depth] = found[0][0, :depth], found[1][0, :depth]
    return rows[:, :depth], scores[:, :depth]


def _sorted(rows: np.ndarray, scores: np.ndarray, order: np.ndarray) -> Found:
    places = np.lexsort((order[rows], -scores), axis=1)
    return np.take_along_axis(rows, places, 1), np.take_along_axis(scores, places, 1)


def _at_least(query: np.ndarray, floor: float, passages: Vectors, passage_block: int) -> np.ndarray:
    """Every row that may score ``floor`` or more."""
    return np.concatenate([start + np.flatnonzero(b @ query >= floor) for start, b in passages.blocks(passage_block)])
