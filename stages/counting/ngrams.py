"""Exact counts of every n-gram of a corpus, in a memory that does not grow with it.

Level by level: an n-gram can occur twice only if both of its (n−1)-grams do, so a level writes down only
the places where both repeat, and every place that it leaves out has count 1. An n-gram's key is the pair (id of
its first n−1 words, id of its last word) in 64 bits, times an odd constant modulo 2⁶⁴: a bijection, so keys are
as exact as pairs, and their leading bits spread them evenly over partitions. Partitions are counted by
themselves, and the answers overwrite the keys on disk.
"""

import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from pathlib import Path

import numpy as np

from stages.counting.blocks import Block, runs
from stages.counting.flat import Flat
from stages.counting.frequencies import tally
from stages.counting.groups import Groups, merge

CHUNK = 1 << 18  # records of one partition that are looked at together
LEAN = 1 << 17  # words per partition: what a core's cache holds while it sorts
THREADS = min(len(os.sched_getaffinity(0)), 4)
END = -1  # stands behind every passage
FIXED = 320 << 20  # bytes of the process that do not depend on the corpus: imports, blocks, chunks
PER_NGRAM = 96  # bytes per distinct n-gram of the partition at hand, copies of sorting and merging included
MOST_PARTITIONS = 1 << 16
GOLDEN = np.uint64(0x9E3779B97F4A7C15)  # 2⁶⁴/φ (Knuth, TAOCP 3, section 6.4)


class Level:
    """The n-grams of one length that may repeat.

    Records lie block after block and, inside a block, partition after partition. A record is first an
    n-gram's key, and after `resolve` its answer: (id or −1 when it does not repeat, count).
    """

    def __init__(self, partitions: int, folder: Path):
        self.partitions, self.bits = partitions, partitions.bit_length() - 1
        self.places, self.records = Flat(np.int32, folder), Flat(np.uint64, folder)
        self.bounds: list[np.ndarray] = []

    def append(self, places: np.ndarray, pairs: np.ndarray) -> None:
        """The next block's candidates: their positions in the block, and their pairs of ids, [candidates] int64."""
        keys = pairs.view(np.uint64) * GOLDEN
        partition = (keys >> np.uint64(48) >> np.uint64(16 - self.bits)).astype(np.uint16)
        order = np.argsort(partition, kind="stable")
        ends = np.cumsum(np.bincount(partition, minlength=self.partitions))
        self.bounds.append(self.records.size + np.concatenate([[0], ends]))
        self.places.append(places[order])
        self.records.append(keys[order])

    def resolve(self) -> Iterator[int]:
        """Replace every key by its answer; yields after each partition."""
        bounds = np.stack(self.bounds)
        sizes = np.diff(bounds, axis=1).sum(axis=0)
        first_ids = (np.cumsum(sizes) - sizes) // 2  # what repeats has two records at least

        def settle(partition: int) -> int:
            self._settle(bounds[:, partition], bounds[:, partition + 1], int(first_ids[partition]))
            return partition

        with ThreadPoolExecutor(THREADS) as pool:
            yield from pool.map(settle, range(self.partitions))

    def read(self, block: int, size: int) -> tuple[np.ndarray, np.ndarray]:
        """[size] int32 ids, −1 where an n-gram does not repeat, and [size] int32 counts, at least 1."""
        start, end = int(self.bounds[block][0]), int(self.bounds[block][-1])
        places = self.places.read(start, end - start)
        answers = self.records.read(start, end - start).view(np.int32).reshape(-1, 2)
        ids, counts = np.full(size, -1, dtype=np.int32), np.ones(size, dtype=np.int32)
        ids[places], counts[places] = answers[:, 0], answers[:, 1]
        return ids, counts

    def _settle(self, starts: np.ndarray, ends: np.ndarray, first_id: int) -> None:
        """One partition, whose records lie at ``starts`` to ``ends``, a stretch per block."""
        chunks = runs(ends - starts, CHUNK)

        @lru_cache(1)  # a partition is nearly always one chunk, and then grouped once
        def groups(chunk: int) -> Groups:
            return Groups(self._load(starts[chunks[chunk]], ends[chunks[chunk]]), self.bits)

        keys, counts = np.empty(0, dtype=np.uint64), np.empty(0, dtype=np.int64)
        for chunk in range(len(chunks)):
            keys, counts = merge(keys, counts, groups(chunk).keys, groups(chunk).counts)
        keys, answers = _answers(keys, counts, first_id)
        for chunk, rows in enumerate(chunks):
            at = np.searchsorted(keys, groups(chunk).keys)
            at[np.append(keys, 0)[at] != groups(chunk).keys] = len(keys)
            self._store(starts[rows], ends[rows], groups(chunk).spread(answers[at]))

    def _load(self, starts: np.ndarray, ends: np.ndarray) -> np.ndarray:
        spans = zip(starts.tolist(), ends.tolist(), strict=True)
        return np.concatenate([self.records.read(start, end - start) for start, end in spans])

    def _store(self, starts: np.ndarray, ends: np.ndarray, records: np.ndarray) -> None:
        parts = np.split(records, np.cumsum(ends - starts)[:-1])
        for start, part in zip(starts.tolist(), parts, strict=True):
            self.records.overwrite(start, part)


def _answers(keys: np.ndarray, counts: np.ndarray, first_id: int) -> tuple[np.ndarray, np.ndarray]:
    """The keys that repeat, and their answers with that of all others behind them; an answer is (id, count)."""
    keys, counts = keys[counts > 1], counts[counts > 1]
    ids = np.append(first_id + np.arange(len(keys)), -1)
    answers = np.stack([ids, np.append(counts, 1)], axis=1).astype(np.int32)
    return keys, answers.view(np.uint64).ravel()


class Ngrams:
    """The n-grams of a corpus up to some length, counted.

    Attributes:
        occurrences: [words] int64, the count of every word.
        totals: totals[n] is the number of n-grams of length n, counted with repetition.
    """

    def __init__(self, folder: Path):
        self.folder = folder
        self.words = Flat(np.int32, folder)
        self.sizes: list[int] = []
        self.occurrences = np.zeros(0, dtype=np.int64)
        self.totals: dict[int, int] = {1: 0}
        self.levels: list[Level] = []

    def add(self, block: Block) -> None:
        """Take in the next passages of the corpus."""
        behind = np.cumsum(block.lengths)
        self.words.append(np.insert(block.words, behind, END))
        self.sizes.append(len(block.words) + len(behind))
        self.occurrences = tally(self.occurrences, block.words)
        self.totals[1] += len(block.words)

    def lengthen(self, partitions: int) -> Iterator[int]:
        """Count the n-grams one word longer than so far; yields after each block and each partition.

        Args:
            partitions: a power of two, at most 2¹⁶; the counts do not depend on it.
        """
        n = len(self.levels) + 2
        level = Level(partitions, self.folder)
        self.totals[n] = 0
        for index, words in enumerate(self._blocks()):
            level.append(*_candidates(self._ids(index, words), words, n))
            self.totals[n] += int(np.maximum(np.diff(np.flatnonzero(words == END), prepend=-1) - n, 0).sum())
            yield index
        yield from level.resolve()
        self.levels.append(level)

    def read(self) -> Iterator[tuple[np.ndarray, list[np.ndarray]]]:
        """Every block: its words with `END` behind each passage, and for n = 2, 3, … the count of the n-gram
        that starts at each of these positions, of no meaning where `END` comes within n words."""
        for index, words in enumerate(self._blocks()):
            yield words, [level.read(index, len(words))[1] for level in self.levels]

    def _blocks(self) -> Iterator[np.ndarray]:
        start = 0
        for size in self.sizes:
            yield self.words.read(start, size)
            start += size

    def _ids(self, index: int, words: np.ndarray) -> np.ndarray:
        """Ids of the repeated n-grams of the length counted last, −1 elsewhere."""
        if self.levels:
            return self.levels[-1].read(index, len(words))[0]
        repeats = np.append(self.occurrences > 1, False)  # the last entry answers for END
        return np.where(repeats[words], words, -1)


def partitions_within(words: int, memory: int) -> int:
    """The partitions, a power of two, that count ``words`` words in a process of ``memory`` bytes.

    Up to 256 are made in any case, as small ones are sorted within the processor's cache. The answer may
    exceed `MOST_PARTITIONS`, and then it cannot be done.
    """
    room = max(memory - FIXED, 1)
    needed = -(-words * PER_NGRAM * THREADS // room)
    return 1 << (max(needed, min(words // LEAN, 256), 1) - 1).bit_length()


def _candidates(ids: np.ndarray, words: np.ndarray, n: int) -> tuple[np.ndarray, np.ndarray]:
    """Where both (n−1)-grams of an n-gram repeat, and the pair that names the n-gram."""
    places = np.flatnonzero((ids[:-1] | ids[1:]) >= 0)  # the sign survives if either is negative
    return places, (ids[places].astype(np.int64) << 32) | words[places + n - 1]
