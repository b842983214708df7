"""GLUE's tasks (Wang et al. 2019): where text and label stand in their TSV files, and what is measured.

Files of https://gluebenchmark.com have a header, CoLA's excepted; the files in which CoLA, SST-2, STS-B and MRPC were
first published are read, too.
"""

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from stages.artifacts.refusal import Refusal
from stages.sources.lines import rows

NLI = ("contradiction", "entailment", "neutral")
BINARY = ("0", "1")


@dataclass(frozen=True)
class Task:
    """One task.

    Attributes:
        texts: names of the column of the text, or of both texts of a pair.
        label: name of the label's column.
        places: where they stand in a file without a header, label last; empty where such files are not about.
        labels: the classes; empty for a regression.
        measures: names, the first one being that which averages count.
    """

    texts: tuple[str, ...]
    label: str
    places: tuple[int, ...]
    labels: tuple[str, ...]
    measures: tuple[str, ...]


TASKS = {
    "cola": Task(("sentence",), "label", (3, 1), BINARY, ("matthews",)),
    "sst-2": Task(("sentence",), "label", (0, 1), BINARY, ("accuracy",)),
    "mrpc": Task(("#1 String", "#2 String"), "Quality", (), BINARY, ("f1", "accuracy")),
    "sts-b": Task(("sentence1", "sentence2"), "score", (5, 6, 4), (), ("pearson", "spearman")),
    "qqp": Task(("question1", "question2"), "is_duplicate", (), BINARY, ("f1", "accuracy")),
    "mnli": Task(("sentence1", "sentence2"), "gold_label", (), NLI, ("accuracy",)),
    "qnli": Task(("question", "sentence"), "label", (), ("entailment", "not_entailment"), ("accuracy",)),
}


@dataclass(frozen=True)
class Examples:
    """Texts and labels of a file.

    Attributes:
        texts: [texts of a task] lists of n strings.
        labels: [n] int64 places among the task's labels, or float32 values of a regression.
        skipped: rows that lack a column; QQP's own file has such.
    """

    texts: list[list[str]]
    labels: np.ndarray
    skipped: int

    def __len__(self) -> int:
        return len(self.labels)


def read_examples(path: Path, task: Task) -> Examples:
    """The examples of a TSV file.

    Raises:
        Refusal: the file is missing or holds no example, its columns are not known, or a label is not the task's.
    """
    texts: list[list[str]] = [[] for _ in task.texts]
    labels: list[float] = []
    skipped = 0
    places: tuple[int, ...] | None = None
    for row, line in rows(path):
        cells = line.split("\t")
        if places is None:
            places = _header(cells, task)
            if places:
                continue
            places = _unheaded(path, task)
        if len(cells) <= max(places):
            skipped += 1
            continue
        labels.append(_label(cells[places[-1]], task, path, row))
        for column, place in zip(texts, places, strict=False):
            column.append(cells[place])
    if not labels:
        raise Refusal(f"{path}: no examples")
    return Examples(texts, np.array(labels, dtype=np.int64 if task.labels else np.float32), skipped)


def _header(cells: list[str], task: Task) -> tuple[int, ...]:
    """Where the columns stand by a header; empty where the cells are none."""
    wanted = (*task.texts, task.label)
    return tuple(cells.index(name) for name in wanted) if set(wanted) <= set(cells) else ()


def _unheaded(path: Path, task: Task) -> tuple[int, ...]:
    if not task.places:
        raise Refusal(f"{path}: row 1: not a header with {', '.join((*task.texts, task.label))}")
    return task.places


def _label(text: str, task: Task, path: Path, row: int) -> float:
    if task.labels:
        if text not in task.labels:
            raise Refusal(f"{path}: row {row}: label {text!r} is none of {', '.join(task.labels)}")
        return task.labels.index(text)
    try:
        return float(np.float32(text))
    except ValueError as error:
        raise Refusal(f"{path}: row {row}: label {text!r} is not a number") from error
