"""``dpr:DIR``: Wikipedia in blocks of 100 words, questions and their answers, as DPR ships NQ and TriviaQA.

https://github.com/facebookresearch/DPR (Karpukhin et al. 2020). psgs_w100.tsv holds the passages. A split's questions
come from one file whose name says train, dev or test: the retriever's data (``*.json``: question, answers,
positive_ctxs), question and answers (``*.qas.csv``), or NQ-open's lines (``*.jsonl``). A question of the last two forms
has no judged passage: what answers it is decided by its answers.

The first of a question's positive_ctxs is its positive, as in DPR's training; the others hold an answer by chance as
often as not. Questions have no ids; theirs is the split and their number there. Blocks with one title that follow one
another are one document.
"""

import ast
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple

from stages.artifacts.refusal import Refusal
from stages.artifacts.tables import SPLITS
from stages.sources.collection import Answer, Judgement, Passage, Query
from stages.sources.lines import count_lines, json_array, json_rows, tsv_rows

HEADER = ["id", "text", "title"]
LONGEST = 1 << 24  # characters of a TSV cell; Python's own limit is 131,072
ID = ("passage_id", "psg_id")  # of a context: NQ's files say one, TriviaQA's the other


class Question(NamedTuple):
    """One question of a split, with the id of its first positive where the file has positives."""

    text: str
    answers: list[str]
    positive: str | None
    path: Path
    row: int


class Dpr:
    """The `Source`; it has answers."""

    def __init__(self, folder: Path):
        self.blocks = folder / "psgs_w100.tsv"
        self.files = {split: path for split in SPLITS if (path := _file(folder, split))}
        if not self.files:
            raise Refusal(f"{folder}: no questions: no *train*, *dev* or *test* of .json, .qas.csv, .qas.tsv or .jsonl")

    def count(self) -> int:
        return count_lines(self.blocks)

    def passages(self) -> Iterator[Passage]:
        for _, article in groupby(self._blocks(), key=lambda block: block[3]):
            document = ""
            for position, (row, name, text, title) in enumerate(article):
                document = document or name
                yield Passage(name, document, position, title, text, str(self.blocks), row)

    def queries(self) -> Iterator[Query]:
        for split, number, question in self._numbered():
            yield Query(f"{split}-{number}", question.text, str(question.path), question.row)

    def judgements(self) -> Iterator[Judgement]:
        for split, number, question in self._numbered():
            if question.positive is not None:
                where = str(question.path), question.row
                yield Judgement(split, f"{split}-{number}", question.positive, 1, *where)

    def answers(self) -> Iterator[Answer]:
        for split, number, question in self._numbered():
            for answer in question.answers:
                yield Answer(split, f"{split}-{number}", answer, str(question.path), question.row)

    def _numbered(self) -> Iterator[tuple[str, int, Question]]:
        """(split, number from 1, question) of every split. A question of the retriever's data without a positive is
        left out, as in DPR's training."""
        for split, path in self.files.items():
            for number, question in enumerate(_questions(path), start=1):
                if path.suffix != ".json" or question.positive is not None:
                    yield split, number, question

    def _blocks(self) -> Iterator[tuple[int, str, str, str]]:
        lines = tsv_rows(self.blocks, 3, LONGEST)
        row, header = next(lines)
        if header != HEADER:
            raise Refusal(f"{self.blocks}: row {row}: the header is not {' '.join(HEADER)}, separated by tabs")
        for row, (name, text, title) in lines:
            yield row, name, text, title


def read(rest: str, words: int) -> Dpr:
    """The reader of ``dpr:rest``; passages are taken as they are. Raises `Refusal` where there are no questions."""
    return Dpr(Path(rest))


def _file(folder: Path, split: str) -> Path | None:
    """The questions of a split; where there are several forms, the one that has positives."""
    for ending in (".json", ".qas.csv", ".qas.tsv", ".jsonl"):
        found = sorted(path for path in folder.glob(f"*{ending}") if split in path.name)
        if len(found) > 1:
            raise Refusal(f"{found[1]}: there is another file of split {split}: {found[0].name}")
        if found:
            return found[0]
    return None


def _questions(path: Path) -> Iterator[Question]:
    if path.suffix == ".json":
        for row, entry in json_array(path):
            positive = next(iter(_listed(entry, "positive_ctxs", dict, path, row)), None)
            yield Question(*_asked(entry, "answers", path, row), _named(positive, path, row), path, row)
    elif path.suffix == ".jsonl":
        for row, entry in json_rows(path):
            yield Question(*_asked(entry, "answer", path, row), None, path, row)
    else:
        for row, (text, answers) in tsv_rows(path, 2, LONGEST):
            yield Question(text, _literal(answers, path, row), None, path, row)


def _asked(entry: dict[str, Any], answers: str, path: Path, row: int) -> tuple[str, list[str]]:
    if not isinstance(entry.get("question"), str):
        raise Refusal(f"{path}: row {row}: column question is no string")
    return entry["question"], _listed(entry, answers, str, path, row)


def _listed(entry: dict[str, Any], column: str, kind: type, path: Path, row: int) -> list[Any]:
    found = entry.get(column)
    if not isinstance(found, list) or not all(isinstance(one, kind) for one in found):
        raise Refusal(f"{path}: row {row}: column {column} is no list of {'strings' if kind is str else 'objects'}")
    return found


def _named(context: dict[str, Any] | None, path: Path, row: int) -> str | None:
    if context is None:
        return None
    name = next((context[key] for key in ID if key in context), None)
    if not isinstance(name, str | int):
        raise Refusal(f"{path}: row {row}: column positive_ctxs: neither {' nor '.join(ID)} is there")
    return str(name)


def _literal(text: str, path: Path, row: int) -> list[str]:
    """The answers in Python's spelling, as DPR writes them: ``['one', "that's two"]``."""
    try:
        found = ast.literal_eval(text.strip())
    except (ValueError, SyntaxError, MemoryError, RecursionError) as error:
        raise Refusal(f"{path}: row {row}: column answers is no list: {text[:40]!r}") from error
    if not isinstance(found, list) or not all(isinstance(one, str) for one in found):
        raise Refusal(f"{path}: row {row}: column answers is no list of strings")
    return found
