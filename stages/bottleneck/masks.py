"""Which words of a text are hidden. Every mask is the top-k of a score.

Arrays are [B, W]: a row per text, a column per word; ``sizes`` holds the pieces in each word, 0 where the text
has ended. A strategy gives every word a score, and `hide` hides the best-scored words that fit the budget, whole.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch

SIZE_BITS, INDEX_BITS = 12, 19  # of a word's size and column in a key: as many as there is room for
SIZE, INDEX, SHIFT = (1 << SIZE_BITS) - 1, (1 << INDEX_BITS) - 1, SIZE_BITS + INDEX_BITS
SPAN_START, SPAN_LONGEST = 0.2, 10  # of a stretch of words: SpanBERT's numbers, 3.8 words on average

COLUMN_BITS = 8
SHORT = 1 << COLUMN_BITS  # words of a text whose rows `hide_rows` can mask: 24 bits are left, as many as a float32 has

Ranked = Callable[[np.ndarray], np.ndarray]
Noise = Callable[[str], np.ndarray]  # "uniform" or "normal" → [B, W] float32, fresh at each call


@dataclass(frozen=True)
class Mask:
    """One strategy and its numbers, as a recipe states them.

    Attributes:
        strategy: a key of `SCORES`, or ``none``, ``all``, ``same``, ``complement``.
        ratio: share of the ordinary pieces to hide.
        by: the weights that ``weighted`` and ``salient`` look at.
        noise: standard deviation of the Gaussian noise of ``salient``.
        unit: ``word`` hides words whole; ``piece`` treats every piece as a word of its own.
    """

    strategy: str = "none"
    ratio: float = 0.0
    by: str = ""
    noise: float = 1.0
    unit: str = "word"


@dataclass(frozen=True)
class Words:
    """What a strategy may look at.

    Attributes:
        sizes: [B, W] pieces in each word.
        weights: [B, W] the weights named by ``Mask.by``, if any.
        hidden: [B, W] what the encoder hides of the same text, if anything.
        noise: makes fresh noise of the same shape.
    """

    sizes: np.ndarray
    noise: Noise
    weights: np.ndarray | None = None
    hidden: np.ndarray | None = None


def budget(sizes: np.ndarray, ratio: float, down: bool = False) -> np.ndarray:
    """[B] pieces that may be hidden: the ratio of the ordinary pieces, at least 1.

    Args:
        down: round down; otherwise half to even.
    """
    pieces = sizes.sum(1)
    share = np.floor(ratio * pieces + 1e-9) if down else np.rint(ratio * pieces)
    allowed: np.ndarray = np.minimum(np.maximum(share.astype(np.int64), 1), pieces)
    return allowed


def hide(scores: np.ndarray, sizes: np.ndarray, pieces: np.ndarray) -> np.ndarray:
    """Take words by falling score, passing over (not stopping at) a word that would exceed the budget.

    Args:
        scores: [B, W] float; no two need differ.
        sizes: [B, W] int pieces in each word, 0 for no word.
        pieces: [B] int budget.

    Returns:
        [B, W] bool, true where the word is hidden: never more than ``pieces`` in a row.
    """
    taken = _greedy(_keys(scores, sizes), pieces, lambda ranked: ranked & SIZE, lambda key: (key >> SIZE_BITS) & INDEX)
    return taken & (sizes > 0)


def hide_rows(noise: np.ndarray, sizes: np.ndarray, text: np.ndarray, pieces: np.ndarray) -> np.ndarray:
    """`hide` by uniform scores for many rows of few short texts: half the bits to sort, sizes looked up.

    Args:
        noise: [rows, W] uint32, uniform; the last `COLUMN_BITS` bits make room for the column.
        sizes: [texts, W] int pieces in each word, 0 behind a text's end; at most `SHORT` words.
        text: [rows] of which text a row is.
        pieces: [texts] int budget.

    Returns:
        [rows, W] bool; behind a text's end it means nothing.
    """
    column = np.uint32(SHORT - 1)
    places = np.arange(sizes.shape[1], dtype=np.uint32)
    keys = (noise & ~column) | np.where(sizes > 0, places, places | ~column)[text]
    table = np.zeros((len(sizes), SHORT), dtype=np.int32)
    table[:, : sizes.shape[1]] = sizes
    flat, base = table.reshape(-1), (text * SHORT).astype(np.uint32)[:, None]
    allowed = pieces.astype(np.int32)[text]
    return _greedy(keys, allowed, lambda ranked: flat.take((ranked & column) + base), lambda key: key & column)


def _greedy(keys: np.ndarray, pieces: np.ndarray, size_of: Ranked, column_of: Ranked) -> np.ndarray:
    """[B, W] bool: the words of the smallest keys, passing over those that exceed what is left of ``pieces`` [B]."""
    ranked = np.sort(keys, axis=1)
    size = size_of(ranked)
    added = torch.from_numpy(size)
    used = added.cumsum(1, dtype=added.dtype).numpy()  # a third of what numpy's takes
    first = (used <= pieces[:, None]).sum(1)  # words before the first that would exceed the budget
    before, some = np.maximum(first - 1, 0)[:, None], (first > 0)[:, None]
    taken: np.ndarray = (keys <= np.take_along_axis(ranked, before, 1)) & some
    left = pieces - np.where(some, np.take_along_axis(used, before, 1), 0)[:, 0]
    open_, columns = np.flatnonzero((left > 0) & (first < keys.shape[1])), np.arange(keys.shape[1])
    while len(open_):  # few rows, few rounds: what is left of a budget is smaller than a word
        sizes = size[open_]
        fits = (columns >= first[open_, None]) & (sizes > 0) & (sizes <= left[open_, None])
        place = fits.argmax(1)
        found = fits[np.arange(len(open_)), place]
        open_, place = open_[found], place[found]
        taken[open_, column_of(ranked[open_, place])] = True
        left[open_] -= size[open_, place]
        first[open_] = place + 1
        open_ = open_[left[open_] > 0]
    return taken


def _keys(scores: np.ndarray, sizes: np.ndarray) -> np.ndarray:
    """[B, W] int64 that sort as scores fall, no two of a row alike: 32 bits of score, the column, the size.

    Sorting numbers is several times as fast as sorting their places.
    """
    bits = (scores.astype(np.float32, copy=False) + np.float32(0)).view(np.int32)  # + 0 makes one zero of two
    rising = bits ^ ((bits >> 31) & np.int32(0x7FFFFFFF))  # integers in the order of the floats
    low = np.arange(sizes.shape[1], dtype=np.int64) << SIZE_BITS | sizes
    keys: np.ndarray = np.left_shift(~rising, SHIFT, dtype=np.int64) | low
    keys[sizes <= 0] = np.iinfo(np.int64).max ^ SIZE
    return keys


def random(mask: Mask, words: Words) -> np.ndarray:
    """Every word alike: whole-word masking as BERT, RetroMAE and SimLM draw it."""
    return words.noise("uniform")


def weighted(mask: Mask, words: Words) -> np.ndarray:
    """Words drawn without replacement in proportion to their weight (MASTER, section 4.2).

    The k largest log-weights with Gumbel noise are such a draw (Efraimidis & Spirakis 2006).
    """
    gumbel = -np.log(-np.log(words.noise("uniform") + 1e-12) + 1e-12)
    scores: np.ndarray = np.log(np.maximum(_weights(words), 1e-12)) + gumbel
    return scores


def salient(mask: Mask, words: Words) -> np.ndarray:
    """The most informative words after Gaussian perturbation (CDMAE, Algorithm 1)."""
    perturbed: np.ndarray = _weights(words) + mask.noise * words.noise("normal")
    return perturbed


def superset(mask: Mask, words: Words) -> np.ndarray:
    """What the encoder hides, and random words up to the ratio (SimLM, section 3.1)."""
    assert words.hidden is not None, "superset needs the mask of the view that it reads"
    return np.where(words.hidden, np.inf, words.noise("uniform"))


def spans(mask: Mask, words: Words) -> np.ndarray:
    """Stretches of neighbouring words, of geometric length (SpanBERT, Joshi et al. 2020, section 3.1).

    A stretch begins at any word with probability `SPAN_START` and after `SPAN_LONGEST` words anyway; the words of
    one share a score, so that they are hidden together.
    """
    columns = np.arange(words.sizes.shape[1])
    begins = (words.noise("uniform") < SPAN_START) | (columns == 0)
    begun = np.maximum.accumulate(np.where(begins, columns, 0), axis=1)
    begun += (columns - begun) // SPAN_LONGEST * SPAN_LONGEST
    scores: np.ndarray = np.take_along_axis(words.noise("normal"), begun, 1)
    return scores


SCORES = {"random": random, "weighted": weighted, "salient": salient, "superset": superset, "spans": spans}


def draw(mask: Mask, words: Words) -> np.ndarray:
    """[B, W] bool: the words that ``mask`` hides.

    ``same`` repeats the encoder's mask of the same text, ``complement`` negates it.
    """
    if mask.strategy == "none":
        return np.zeros(words.sizes.shape, dtype=bool)
    if mask.strategy == "all":
        return words.sizes > 0
    if mask.strategy in ("same", "complement"):
        assert words.hidden is not None, f"{mask.strategy} needs the mask of the view that it reads"
        return words.hidden if mask.strategy == "same" else (words.sizes > 0) & ~words.hidden
    pieces = budget(words.sizes, mask.ratio, down=mask.strategy == "salient")  # Algorithm 1 has ⌊n·p⌋
    return hide(SCORES[mask.strategy](mask, words), words.sizes, pieces)


def _weights(words: Words) -> np.ndarray:
    assert words.weights is not None, "this strategy needs weights"
    return words.weights
