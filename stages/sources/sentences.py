"""Sentences and passages of a text, as spans: nothing is rewritten, so no word is lost."""

import re
from bisect import bisect_left
from itertools import accumulate, pairwise
from typing import NamedTuple

WORD = re.compile(r"\S+")
BORDER = re.compile(r"(\n[ \t]*\n\s*|\n)|[.!?][\"')\]]*([ \t]+)(?=[^\sa-z])")
ABBREVIATION = re.compile(
    r"(?:^|[\s(\[\"'])(?:e\.g|i\.e|cf|vs|etc|al|resp|approx|fig|eq|no|dr|mr|mrs|prof|[a-z])\.$", re.I
)
END = re.compile(r"[.!?][\"')\]]*(?=\s+[^\sa-z]|\s*$)")

# What ending a passage there costs, in the unit of `_cost`: nothing before a paragraph, most inside a line.
SENTENCE, LINE, INSIDE = 0.05, 0.1, 0.5
LONGEST = 1.5  # times the wished length


class Unit(NamedTuple):
    """The smallest piece that a passage is made of: at most the wished number of words, none of it rewritten."""

    start: int
    end: int
    words: int
    price: float  # of cutting before it


def first_sentence(text: str) -> int:
    """Where the first sentence of ``text`` ends: behind its full stop, or at the end of the first paragraph."""
    paragraph = re.split(r"\n[ \t]*\n", text, maxsplit=1)[0].rstrip()
    for end in END.finditer(paragraph):
        if not ABBREVIATION.search(paragraph[: end.start() + 1]):
            return end.end()
    return len(paragraph)


def passages(text: str, words: int) -> list[str]:
    """Cut ``text`` into passages of about ``words`` words.

    The cut is the best of all: it minimises the squared relative distance of every passage from ``words``, plus a
    price for ending one at a sentence or a line instead of a paragraph, or inside a line. A passage has at most
    1.5 × ``words`` words; the words of the passages are the words of the text, in order.
    """
    units = units_of(text, words)
    ends = [0, *accumulate(unit.words for unit in units)]
    best, origin = [0.0], [0]
    for stop in range(1, len(ends)):
        lowest = bisect_left(ends, ends[stop] - LONGEST * words)
        totals = [best[start] + _cost(ends[stop] - ends[start], words) for start in range(lowest, stop)]
        start = lowest + totals.index(min(totals))
        origin.append(start)
        best.append(min(totals) + (units[stop].price if stop < len(units) else 0.0))
    cuts = [len(units)]
    while cuts[-1]:
        cuts.append(origin[cuts[-1]])
    return [text[units[a].start : units[b - 1].end] for a, b in pairwise(reversed(cuts))]


def units_of(text: str, words: int) -> list[Unit]:
    """The sentences and lines of ``text`` in order, those longer than ``words`` words cut into several."""
    units = []
    gaps = [(border.span(border.lastindex or 0), _price(border)) for border in BORDER.finditer(text)]
    for ((_, start), price), ((stop, _), _) in pairwise([((0, 0), 0.0), *gaps, ((len(text), 0), 0.0)]):
        found = list(WORD.finditer(text, start, stop))
        for at in range(0, len(found), words):
            piece = found[at : at + words]
            units.append(Unit(piece[0].start(), piece[-1].end(), len(piece), INSIDE if at else price))
    return units


def _cost(length: int, words: int) -> float:
    return (length / words - 1) ** 2


def _price(border: re.Match[str]) -> float:
    if border[1] is None:
        return SENTENCE
    return LINE if border[1].count("\n") == 1 else 0.0
