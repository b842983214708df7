"""Passages to show, and the words in them that answer to a query's."""

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
from markupsafe import Markup, escape

from stages.artifacts.tables import Passages

WORD = re.compile(r"\w+")
LOOKED_AT = 20_000  # passages from which it is learned which words are common
COMMON = 0.1  # share of passages from which on a word says nothing
LONGEST = 700  # characters of a passage shown
STEM = 4  # letters that two forms of a word share at least


@dataclass(frozen=True)
class Shelf:
    """Some passages by id, and the words that are too common to mark."""

    texts: dict[str, tuple[str, str]]
    common: frozenset[str]

    def title(self, passage_id: str) -> str:
        """The title, empty where there is none."""
        return self.texts.get(passage_id, ("", ""))[0]

    def marked(self, passage_id: str, query: str) -> Markup:
        """The passage as HTML, what the query asks for in ``<mark>``; cut where it is long."""
        return marked(self.texts.get(passage_id, ("", ""))[1], query, self.common)


def shelved(passages: Path, wanted: Iterable[str]) -> Shelf:
    """Read the passages wanted, by one pass over the table."""
    ids, texts = pa.array(sorted(set(wanted)), pa.string()), dict[str, tuple[str, str]]()
    for batch in Passages.stream(passages, ["passage_id", "title", "text"]):
        for row in batch.filter(pc.is_in(batch["passage_id"], ids)).to_pylist():
            texts[row["passage_id"]] = row["title"], row["text"]
    return Shelf(texts, common_words(passages))


def common_words(passages: Path) -> frozenset[str]:
    """Words of over a tenth of the first passages."""
    counts: Counter[str] = Counter()
    rows = (text for batch in Passages.stream(passages, ["text"]) for text in batch["text"].to_pylist())
    seen = 0
    for text in islice(rows, LOOKED_AT):
        counts.update({word.casefold() for word in WORD.findall(text)})
        seen += 1
    return frozenset(word for word, count in counts.items() if count > COMMON * seen)


def marked(text: str, query: str, common: frozenset[str] = frozenset()) -> Markup:
    """HTML of a text, escaped, with ``<mark>`` around the words that a query's rarer words are forms of."""
    text = text if len(text) <= LONGEST else text[:LONGEST].rsplit(" ", 1)[0] + " …"
    asked = {word.casefold() for word in WORD.findall(query)} - common
    parts, end = [], 0
    for found in WORD.finditer(text):
        if any(alike(found[0].casefold(), word) for word in asked):
            parts += [escape(text[end : found.start()]), Markup("<mark>"), escape(found[0]), Markup("</mark>")]
            end = found.end()
    return Markup("").join([*parts, escape(text[end:])])


def alike(one: str, other: str) -> bool:
    """Whether two words are forms of one: the same up to their last three letters, and four letters at least."""
    shared = max(STEM, min(len(one), len(other)) - 1, max(len(one), len(other)) - 3)
    return one == other or (min(len(one), len(other)) >= shared and one[:shared] == other[:shared])
