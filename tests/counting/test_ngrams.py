"""Counting n-grams, against collections.Counter."""

import tempfile
from collections import Counter
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stages.counting import ngrams as room
from stages.counting.blocks import Block, runs
from stages.counting.ngrams import END, Ngrams, partitions_within

corpora = st.lists(st.lists(st.integers(0, 3), max_size=12), min_size=1, max_size=12)


def block_of(passages: list[list[int]]) -> Block:
    words = np.array([word for passage in passages for word in passage], dtype=np.int32)
    lengths = np.array([len(passage) for passage in passages], dtype=np.int64)
    return Block(pa.array([str(i) for i in range(len(passages))]), words, lengths)


def counted(blocks: list[list[list[int]]], longest: int, partitions: int) -> tuple[Ngrams, list[list[int]]]:
    """The object, and for n = 2 … longest the counts at every position that has an n-gram, in corpus order."""
    ngrams = Ngrams(Path(tempfile.gettempdir()))
    for passages in blocks:
        ngrams.add(block_of(passages))
    for _ in range(2, longest + 1):
        list(ngrams.lengthen(partitions))
    found: list[list[int]] = [[] for _ in range(2, longest + 1)]
    for words, counts in ngrams.read():
        for n, count in enumerate(counts, start=2):
            starts = [i for i in range(len(words) - n + 1) if END not in words[i : i + n]]
            found[n - 2] += count[starts].tolist()
    return ngrams, found


def expected(passages: list[list[int]], n: int) -> list[int]:
    grams = [tuple(passage[i : i + n]) for passage in passages for i in range(len(passage) - n + 1)]
    times = Counter(grams)
    return [times[gram] for gram in grams]


@settings(max_examples=60, deadline=None)
@given(st.lists(corpora, min_size=1, max_size=3), st.sampled_from([1, 2, 64]), st.integers(2, 5))
def test_counts_are_those_of_a_counter(blocks: list[list[list[int]]], partitions: int, longest: int) -> None:
    passages = [passage for block in blocks for passage in block]
    ngrams, found = counted(blocks, longest, partitions)
    for n in range(2, longest + 1):
        assert found[n - 2] == expected(passages, n)
        assert ngrams.totals[n] == len(expected(passages, n))
    assert ngrams.totals[1] == ngrams.occurrences.sum() == sum(map(len, passages))


def test_a_partition_larger_than_a_chunk_is_merged(monkeypatch: pytest.MonkeyPatch) -> None:
    passages = np.random.default_rng(0).integers(0, 5, size=(40, 30)).tolist()
    monkeypatch.setattr(room, "CHUNK", 32)
    _, found = counted([passages[:10], passages[10:]], 4, 2)
    assert found == [expected(passages, n) for n in (2, 3, 4)]


def test_one_word_over_and_over() -> None:
    """Every pair lands in one partition, which no hash can spread."""
    _, found = counted([[[0] * 500], [[0] * 500]], 4, 64)
    assert found == [[998] * 998, [996] * 996, [994] * 994]


def test_n_grams_do_not_cross_passages() -> None:
    ngrams, found = counted([[[0, 1], [1, 0], [0, 1]]], 3, 1)
    assert found == [[2, 1, 2], []]
    assert ngrams.totals == {1: 6, 2: 3, 3: 0}


def test_large_ids_stay_exact() -> None:
    """Word ids near 2³¹ would wrap in a careless packing."""
    big = 1 << 24
    _, found = counted([[[big, 0, big + 1], [big, 0, big + 1], [0, big, 0]]], 3, 4)
    assert found == [[3, 2, 3, 2, 1, 3], [2, 2, 1]]


@given(st.lists(st.integers(0, 9), min_size=1, max_size=30), st.integers(1, 20))
def test_runs_cover_everything_in_order(sizes: list[int], most: int) -> None:
    parts = runs(np.array(sizes), most)
    assert [i for part in parts for i in range(len(sizes))[part]] == list(range(len(sizes)))
    assert all(sum(sizes[part]) < most + max(sizes) for part in parts)


def test_partitions_are_a_power_of_two_and_keep_under_the_memory() -> None:
    for words in (0, 1, 10**6, 10**9, 10**11):
        for memory in (1 << 29, 1 << 31):
            partitions = partitions_within(words, memory)
            assert partitions & (partitions - 1) == 0
            assert partitions * (memory - room.FIXED) >= words * room.PER_NGRAM * room.THREADS
