"""Search against brute force."""

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given, settings

from stages.ranking.encoding import Vectors
from stages.ranking.search import Index, TopK, faiss_top, torch_top

BACKENDS = {"faiss": faiss_top, "torch": torch_top}


def brute(queries: np.ndarray, passages: np.ndarray, order: np.ndarray, depth: int) -> tuple[np.ndarray, np.ndarray]:
    """Every product in float64, rounded, all sorted."""
    scores = (queries.astype(np.float64) @ passages.astype(np.float64).T).astype(np.float32)
    rows = np.lexsort((np.broadcast_to(order, scores.shape), -scores), axis=1)[:, :depth]
    return rows, np.take_along_axis(scores, rows, 1)


def found(queries: np.ndarray, passages: np.ndarray, order: np.ndarray, depth: int, top: TopK, shard: int, block: int):  # type: ignore[no-untyped-def]
    index = Index(Vectors.of(passages, shard), order, top, block)
    parts = list(index.search(Vectors.of(queries, 3), depth, block=4))
    assert [start for start, _, _ in parts] == list(range(0, len(queries), 3))
    return np.concatenate([rows for _, rows, _ in parts]), np.concatenate([scores for _, _, scores in parts])


@pytest.mark.parametrize("backend", BACKENDS)
@settings(max_examples=25, deadline=None)
@given(
    seed=st.integers(0, 2**32),
    passages=st.integers(1, 120),
    depth=st.integers(1, 70),
    block=st.sampled_from([1, 7, 40, 500]),
    kind=st.sampled_from(["floats", "small integers", "duplicates", "all the same"]),
)
def test_is_brute_force_whatever_the_blocks_and_ties(
    backend: str, seed: int, passages: int, depth: int, block: int, kind: str
) -> None:
    rng = np.random.default_rng(seed)
    queries, corpus = rng.normal(size=(8, 12)).astype(np.float32), rng.normal(size=(passages, 12)).astype(np.float32)
    if kind == "small integers":
        queries, corpus = rng.integers(-1, 2, (8, 12)), rng.integers(-1, 2, (passages, 12))
    elif kind == "duplicates":
        corpus = corpus[rng.integers(0, max(1, passages // 20), passages)]
    elif kind == "all the same":
        corpus = np.repeat(corpus[:1], passages, axis=0)
    queries, corpus = queries.astype(np.float32), corpus.astype(np.float32)
    order = rng.permutation(passages)
    rows, scores = found(queries, corpus, order, depth, BACKENDS[backend], shard=max(1, block // 2), block=block)
    expected = brute(queries, corpus, order, depth)
    np.testing.assert_array_equal(rows, expected[0])
    np.testing.assert_array_equal(scores, expected[1])


def test_backends_agree_to_the_last_bit_on_a_real_size() -> None:
    rng = np.random.default_rng(3)
    corpus = rng.normal(size=(3_000, 48)).astype(np.float32)
    corpus /= np.linalg.norm(corpus, axis=1, keepdims=True)
    queries, order = corpus[:50] + 0.01, rng.permutation(3_000)
    one = found(queries, corpus, order, 200, faiss_top, 512, 1_024)
    other = found(queries, corpus, order, 200, torch_top, 1_000, 3_000)
    np.testing.assert_array_equal(one[0], other[0])
    np.testing.assert_array_equal(one[1], other[1])
