"""What is written where a word is hidden."""

import numpy as np

from stages.artifacts.checkpoints import Vocabulary

REPLACED, RANDOM = 0.8, 0.1  # of the hidden pieces: [MASK], a random piece; the rest stays (BERT, section 3.1)


def bert(ids: np.ndarray, hidden: np.ndarray, noise: np.ndarray, vocabulary: Vocabulary) -> np.ndarray:
    """80 % [MASK], 10 % a random piece, 10 % the piece itself, each piece on its own.

    Args:
        ids: [B, L]; hidden: [B, L] bool; noise: [B, L] uniform in [0, 1).
    """
    # one draw serves twice: below 0.1 it is spread over the vocabulary, above it only picks the outcome
    pieces = (noise * (vocabulary.size / RANDOM)).astype(ids.dtype)
    filled = np.where(noise < RANDOM, pieces, np.where(noise < RANDOM + REPLACED, vocabulary.mask, ids))
    return np.where(hidden, filled, ids)


def mask(ids: np.ndarray, hidden: np.ndarray, noise: np.ndarray, vocabulary: Vocabulary) -> np.ndarray:
    """[MASK] everywhere; a generator may write over it later."""
    return np.where(hidden, vocabulary.mask, ids)


def keep(ids: np.ndarray, hidden: np.ndarray, noise: np.ndarray, vocabulary: Vocabulary) -> np.ndarray:
    """The text as it is: visibility, not replacement, hides words from the reader."""
    return ids


FILLS = {"bert": bert, "mask": mask, "keep": keep, "generator": mask}
