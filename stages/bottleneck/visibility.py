"""Which pieces a row may look at where every row has a mask of its own (RetroMAE; DupMAE, Eq. 5)."""

import numpy as np

from stages.bottleneck.masks import Mask, Words, draw

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
    count = min(length, POOL) if pool else length
    sizes = np.broadcast_to(np.bincount(word), (count, int(word[-1]) + 1))
    wide = None if weights is None else np.broadcast_to(weights[: sizes.shape[1]], sizes.shape)

    def noise(kind: str) -> np.ndarray:
        draws = generator.random if kind == "uniform" else generator.standard_normal
        return draws(sizes.shape, dtype=np.float32)

    hidden = draw(mask, Words(sizes, noise, wide))
    if pool:
        hidden = hidden[generator.integers(count, size=length)]
    visible = np.ones((length, length), dtype=bool)
    visible[:, 1:-1] = ~hidden[:, word] | fixed
    np.fill_diagonal(visible, False)
    return visible
