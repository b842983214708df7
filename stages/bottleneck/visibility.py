"""Which pieces a row may look at where every row has a mask of its own (RetroMAE; DupMAE, Eq. 5)."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from stages.bottleneck.masks import SHORT, Mask, Words, budget, draw, hide_rows

SPECIALS = 2  # [CLS] and [SEP] around every text
GROUP = 8  # texts masked in one go: few enough for a CPU's cache
POOL = 256  # masks that the rows of one text draw from, at most (RetroMAE's released code)


@dataclass(frozen=True)
class Text:
    """One text of n pieces and W words.

    Attributes:
        word: [n] the word of every piece, counted from 0.
        fixed: [n] bool, special pieces inside the text: never hidden.
        weights: [≥ W] for masks that look at them.
        generator: of its own, so that its masks do not depend on what it is masked with.
    """

    word: np.ndarray
    fixed: np.ndarray
    weights: np.ndarray | None
    generator: np.random.Generator

    def rows(self, pool: bool) -> int:
        """How many masks are drawn for it."""
        return min(len(self.word) + SPECIALS, POOL) if pool else len(self.word) + SPECIALS


def visibility(mask: Mask, texts: Sequence[Text], pool: bool = False) -> Iterator[np.ndarray]:
    """The matrix of every text, L = n + 2 with its specials.

    Args:
        pool: whether rows draw, with replacement, from min(L, `POOL`) masks instead of having one each.

    Yields:
        [L, L] bool: row i sees column j. Column 0 is the vector, which every row but its own sees; no row sees itself.
    """
    for start in range(0, len(texts), GROUP):
        group = texts[start : start + GROUP]
        for text, hidden in zip(group, _hidden(mask, group, pool), strict=True):
            length = len(text.word) + SPECIALS
            if pool:
                hidden = hidden[text.generator.integers(len(hidden), size=length)]
            visible = np.ones((length, length), dtype=bool)
            np.logical_not(hidden[:, text.word], out=visible[:, 1:-1])
            visible[:, 1:-1][:, text.fixed] = True
            visible.reshape(-1)[:: length + 1] = False
            yield visible


def _hidden(mask: Mask, texts: Sequence[Text], pool: bool) -> list[np.ndarray]:
    """[rows, ≥ W] bool of every text."""
    sizes = [np.bincount(text.word) for text in texts]
    if mask.strategy != "random" or max(map(len, sizes)) > SHORT:
        return [_drawn(mask, text, size, text.rows(pool)) for text, size in zip(texts, sizes, strict=True)]
    counts = [text.rows(pool) for text in texts]
    wide = np.zeros((len(texts), max(map(len, sizes))), dtype=np.int64)
    noise = np.zeros((sum(counts), wide.shape[1]), dtype=np.uint32)
    ends = np.cumsum(counts)
    for place, (text, size, count, end) in enumerate(zip(texts, sizes, counts, ends, strict=True)):
        wide[place, : len(size)] = size
        drawn = text.generator.bit_generator.random_raw((count * len(size) + 1) // 2).view(np.uint32)
        noise[end - count : end, : len(size)] = drawn[: count * len(size)].reshape(count, -1)
    hidden = hide_rows(noise, wide, np.repeat(np.arange(len(texts)), counts), budget(wide, mask.ratio))
    return np.split(hidden, ends[:-1])


def _drawn(mask: Mask, text: Text, sizes: np.ndarray, count: int) -> np.ndarray:
    """[count, W] bool: masks of one text by any strategy."""
    wide = np.broadcast_to(sizes, (count, len(sizes)))
    weights = None if text.weights is None else np.broadcast_to(text.weights[: len(sizes)], wide.shape)

    def noise(kind: str) -> np.ndarray:
        draws = text.generator.random if kind == "uniform" else text.generator.standard_normal
        return draws(wide.shape, dtype=np.float32)

    return draw(mask, Words(wide, noise, weights))
