"""Equal keys side by side, by one sort in cache."""

import numpy as np


class Groups:
    """Keys sorted, equal ones counted, and the way back.

    The keys' upper bits are sorted together with their positions in one 64-bit number, several times faster
    than an indirect sort. Should different keys agree in all these bits, an indirect sort does it after all.

    Attributes:
        keys: [groups] uint64, distinct, ascending.
        counts: [groups] int64.
    """

    def __init__(self, keys: np.ndarray, shared: int):
        """``shared``: how many leading bits are the same in all ``keys`` ([records] uint64)."""
        low = np.uint64(len(keys).bit_length())
        packed = ((keys << np.uint64(shared)) >> low << low) | np.arange(len(keys), dtype=np.uint64)
        packed.sort()
        self.order: np.ndarray = packed & ((np.uint64(1) << low) - np.uint64(1))
        ascending = keys[self.order]
        changes = ascending[1:] != ascending[:-1]
        if np.any(changes & ((packed[1:] ^ packed[:-1]) >> low == 0)):
            self.order = np.argsort(keys)
            ascending = keys[self.order]
            changes = ascending[1:] != ascending[:-1]
        first = np.concatenate([[0] * min(len(keys), 1), np.flatnonzero(changes) + 1]).astype(np.int64)
        self.keys, self.counts = ascending[first], np.diff(first, append=len(keys))

    def spread(self, values: np.ndarray) -> np.ndarray:
        """[records]: the value of every record's group, ``values`` being [groups]."""
        out = np.empty(len(self.order), dtype=values.dtype)
        out[self.order] = np.repeat(values, self.counts)
        return out


def merge(
    keys: np.ndarray, counts: np.ndarray, more_keys: np.ndarray, more_counts: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """The union of two sets of distinct ascending keys, the counts of common ones added."""
    if not len(keys):
        return more_keys, more_counts
    union, inverse = np.unique(np.concatenate([keys, more_keys]), return_inverse=True)
    totals = np.zeros(len(union), dtype=np.int64)
    np.add.at(totals, inverse, np.concatenate([counts, more_counts]))
    return union, totals
