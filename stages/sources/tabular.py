"""Queries and judgements as columns of text, the forms that MS MARCO and TREC share."""

import re
from collections.abc import Iterator
from pathlib import Path

from stages.artifacts.refusal import Refusal
from stages.sources.collection import Judgement, Query
from stages.sources.lines import columns, grade, rows


def tsv_queries(path: Path) -> Iterator[Query]:
    """The queries of a file of lines ``id TAB text``. Raises `Refusal` where a line has other columns."""
    for row, line in rows(path):
        name, text = columns(line, 2, path, row)
        yield Query(name, text, str(path), row)


def judgements_of(split: str, path: Path) -> Iterator[Judgement]:
    """The judgements of a file whose lines have one of the forms that are about.

    ``query passage``, ``query passage relevance``, or TREC's ``query iteration passage relevance``, by tabs or blanks.

    Raises:
        Refusal: a line has fewer than 2 or more than 4 columns, or a relevance that is no small integer.
    """
    for row, line in rows(path):
        cells = re.split(r"[ \t]+", line.strip())
        if not 2 <= len(cells) <= 4:
            raise Refusal(f"{path}: row {row}: {len(cells)} columns, expected 2 to 4")
        passage = cells[2] if len(cells) == 4 else cells[1]
        relevance = 1 if len(cells) == 2 else grade(cells[-1], "relevance", path, row)
        yield Judgement(split, cells[0], passage, relevance, str(path), row)
