"""Sequences of pieces → word ids: two words are the same if and only if their pieces are."""

import numpy as np


class Lexicon:
    """A trie over pieces, held in sorted arrays, so that a batch of words walks it together.

    A node is a sequence of pieces met as the beginning of some word; an edge packs the parent node and
    one piece into an int64. Nothing is hashed: ids are exact. Word ids count from 0 by first occurrence.
    """

    def __init__(self) -> None:
        self.edges = np.empty(0, dtype=np.int64)
        self.targets = np.empty(0, dtype=np.int64)
        self.word_of_node = np.empty(0, dtype=np.int32)
        self.size = 0

    def number(self, pieces: np.ndarray, starts: np.ndarray) -> np.ndarray:
        """[words] int32 ids of the words that begin where ``starts`` (like ``pieces``, bool) is true."""
        first = np.flatnonzero(starts)
        lengths = np.diff(first, append=len(pieces))
        nodes = np.full(len(first), -1, dtype=np.int64)
        walking, depth = np.arange(len(first)), 0
        while len(walking):
            nodes[walking] = self._step(nodes[walking], pieces[first[walking] + depth])
            depth += 1
            walking = walking[lengths[walking] > depth]
        return self._name(nodes)

    def _step(self, parents: np.ndarray, pieces: np.ndarray) -> np.ndarray:
        edges, inverse = np.unique(((parents + 1) << 32) | pieces, return_inverse=True)
        at = np.searchsorted(self.edges, edges)
        fresh = np.append(self.edges, -1)[at] != edges
        targets = np.append(self.targets, -1)[at]
        targets[fresh] = len(self.edges) + np.arange(np.count_nonzero(fresh))
        self.edges = np.insert(self.edges, at[fresh], edges[fresh])
        self.targets = np.insert(self.targets, at[fresh], targets[fresh])
        return np.asarray(targets[inverse])

    def _name(self, nodes: np.ndarray) -> np.ndarray:
        unknown = np.full(len(self.edges) - len(self.word_of_node), -1, dtype=np.int32)
        self.word_of_node = np.concatenate([self.word_of_node, unknown])
        fresh, first = np.unique(nodes[self.word_of_node[nodes] < 0], return_index=True)
        self.word_of_node[fresh[np.argsort(first)]] = self.size + np.arange(len(fresh))
        self.size += len(fresh)
        return np.asarray(self.word_of_node[nodes])
