"""``beir:DIR``: corpus.jsonl, queries.jsonl and qrels/{train,dev,test}.tsv, as the BEIR benchmark ships them.

https://github.com/beir-cellar/beir/wiki/Load-your-custom-dataset. Where documents have several passages, each line of
corpus.jsonl also has ``doc_id`` and ``position``, and the lines of a document follow each other. A folder of
corpus.jsonl alone is a corpus to pre-train on.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from stages.artifacts.refusal import Refusal
from stages.artifacts.tables import SPLITS
from stages.sources.collection import Judgement, Passage, Query
from stages.sources.lines import columns, count_lines, field, grade, json_rows, rows

HEADER = ["query-id", "corpus-id", "score"]


class Beir:
    """The `Source`."""

    def __init__(self, folder: Path):
        self.corpus, self.asked = folder / "corpus.jsonl", folder / "queries.jsonl"
        self.qrels = {split: folder / "qrels" / f"{split}.tsv" for split in SPLITS}
        self.qrels = {split: path for split, path in self.qrels.items() if path.exists()}
        self.alone = self.corpus.exists() and not self.asked.exists() and not (folder / "qrels").exists()
        if not self.qrels and not self.alone:
            raise Refusal(f"{folder / 'qrels'}: none of train.tsv, dev.tsv and test.tsv is there")

    def count(self) -> int:
        return count_lines(self.corpus)

    def passages(self) -> Iterator[Passage]:
        origin = str(self.corpus)
        for row, line in json_rows(self.corpus):
            name, text = (field(line, column, self.corpus, row) for column in ("_id", "text"))
            title = field(line, "title", self.corpus, row) if "title" in line else ""
            document, position = self._place(line, name, row)
            yield Passage(name, document, position, title, text, origin, row)

    def queries(self) -> Iterator[Query]:
        for row, line in json_rows(self.asked) if not self.alone else ():
            name, text = (field(line, column, self.asked, row) for column in ("_id", "text"))
            yield Query(name, text, str(self.asked), row)

    def judgements(self) -> Iterator[Judgement]:
        for split, path in self.qrels.items():
            lines = rows(path)
            row, header = next(lines)
            if header.split("\t") != HEADER:
                raise Refusal(f"{path}: row {row}: the header is not {' '.join(HEADER)}, separated by tabs")
            for row, line in lines:
                query, passage, score = columns(line, 3, path, row)
                yield Judgement(split, query, passage, grade(score, "score", path, row), str(path), row)

    def _place(self, line: dict[str, Any], name: str, row: int) -> tuple[str, int]:
        """The passage's document and its place there; a passage without them is its own document."""
        if "doc_id" not in line:
            return name, 0
        position = line.get("position")
        if type(position) is not int or not 0 <= position < 2**31:
            raise Refusal(f"{self.corpus}: row {row}: column position is {position!r}, not a count from 0")
        return field(line, "doc_id", self.corpus, row), position


def read(rest: str, words: int) -> Beir:
    """The reader of ``beir:rest``; passages are taken as they are. Raises `Refusal` where queries have no qrels."""
    return Beir(Path(rest))
