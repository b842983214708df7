"""Passages that hold an answer to a question: where only some positives are judged, these are no negatives (NQ)."""

from pathlib import Path

import numpy as np

from stages.artifacts.answers import holds
from stages.artifacts.judgements import Asked, rows_in
from stages.artifacts.refusal import Refusal
from stages.artifacts.tables import Answers, Passages


def read_answers(path: Path | str, asking: Asked) -> list[list[str]]:
    """The answers to every asked query, none where the table has none.

    Raises:
        Refusal: no query of ours has an answer.
    """
    found: list[list[str]] = [[] for _ in range(len(asking))]
    for batch in Answers.stream(path):
        owners = rows_in(batch.column("query_id"), asking.ids)
        for place in np.flatnonzero(owners >= 0):
            found[owners[place]].append(batch.column("answer")[int(place)].as_py())
    if not any(found):
        raise Refusal(f"{path}: no answer to a query of {asking.path}")
    return found


def answering(passages: Path | str, row: np.ndarray, query: np.ndarray, answers: list[list[str]]) -> np.ndarray:
    """[n] bool: whether the text of passage ``row[i]`` holds one of ``answers[query[i]]``; titles do not count.

    The passages are streamed once, whatever the order of the pairs.
    """
    order, start, done = np.argsort(row, kind="stable"), 0, 0
    rising, found = row[order], np.zeros(len(row), dtype=bool)
    for batch in Passages.stream(passages, ["text"]):
        end = start + batch.num_rows
        last = int(np.searchsorted(rising, end))
        texts = batch.column("text")
        for pair in order[done:last]:
            found[pair] = holds(texts[int(row[pair]) - start].as_py(), answers[query[pair]])
        start, done = end, last
    return found
