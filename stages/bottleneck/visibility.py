"""Which pieces a row may look at where every row has a mask of its own (RetroMAE; DupMAE, Eq. 5)."""

import numpy as np

from stages.bottleneck.masks import SHORT, Mask, Words, budget, draw, hide_rows

POOL = 256  # masks that the rows of one text draw from, at most (RetroMAE's released code)


def visibility(
    mask: Mask,
    word: np.ndarray,
    fixed: np.ndarray,
    weights: np.ndarray | None,
    generator: np.random.Generator,
    pool: bool = False,
) -> np.ndarray:
    """The matrix of one text of n pieces, L = n + 2 with its specials.

    Args:
        word: [n] the word of every piece, counted from 0.
        fixed: [n] bool, special pieces inside the text: never hidden.
        weights: [words] for masks that look at them.
        pool: whether rows draw, with replacement, from min(L, `POOL`) masks instead of having one each.

    Returns:
        [L, L] bool: row i sees column j. Column 0 is the vector, which every row but its own sees; no row sees itself.
    """
    length = len(word) + 2
    hidden = _hidden(mask, np.bincount(word), min(length, POOL) if pool else length, weights, generator)
    if pool:
        hidden = hidden[generator.integers(len(hidden), size=length)]
    visible = np.ones((length, length), dtype=bool)
    np.logical_not(hidden[:, word], out=visible[:, 1:-1])
    visible[:, 1:-1][:, fixed] = True
    visible.reshape(-1)[:: length + 1] = False
    return visible


def _hidden(
    mask: Mask, sizes: np.ndarray, count: int, weights: np.ndarray | None, generator: np.random.Generator
) -> np.ndarray:
    """[count, W] bool: masks of one text of W words."""
    if mask.strategy == "random" and len(sizes) <= SHORT:
        noise = generator.bit_generator.random_raw((count * len(sizes) + 1) // 2).view(np.uint32)
        allowed = int(budget(sizes[None], mask.ratio)[0])
        return hide_rows(noise[: count * len(sizes)].reshape(count, -1), sizes, allowed)
    wide = np.broadcast_to(sizes, (count, len(sizes)))

    def made(kind: str) -> np.ndarray:
        draws = generator.random if kind == "uniform" else generator.standard_normal
        return draws(wide.shape, dtype=np.float32)

    return draw(
        mask, Words(wide, made, None if weights is None else np.broadcast_to(weights[: len(sizes)], wide.shape))
    )
