"""Whether a passage holds an answer, as DPR's evaluation decides it (Karpukhin et al. 2020, section 5).

Text and answer are decomposed (Unicode NFD), cut into runs of letters, digits and marks and into single other visible
characters, and put into lower case; an answer is held where its tokens follow one another in the text.
"""

import unicodedata
from collections.abc import Sequence
from functools import lru_cache

import regex

TOKEN = regex.compile(r"[\p{L}\p{N}\p{M}]+|[^\p{Z}\p{C}]")


def holds(text: str, answers: Sequence[str]) -> bool:
    """Whether the tokens of one of the answers stand in ``text`` one behind the other.

    Args:
        text: the body of a passage; DPR leaves the title out.
        answers: in any of their spellings. One without a visible character is never held.
    """
    return among(framed(text), answers)


def among(found: str, answers: Sequence[str]) -> bool:
    """`holds` of a text that is `framed` already."""
    return any(answer in found for answer in map(_framed_answer, answers) if answer.strip())


def framed(text: str) -> str:
    """The tokens of ``text``, each between blanks, so that containment of strings is containment of tokens."""
    return f" {' '.join(TOKEN.findall(unicodedata.normalize('NFD', text)))} ".lower()


_framed_answer = lru_cache(1 << 16)(framed)  # every passage of a query is asked for the same answers
