"""A collection as a BEIR folder, or as MS MARCO's TSV files; `stages.sources` reads both back."""

import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from stages.artifacts.refusal import Refusal
from stages.artifacts.tables import SPLITS, Passages, Qrels, Queries, rows_of
from stages.sources.msmarco import UNTITLED


@dataclass(frozen=True)
class Tables:
    """A collection's three tables."""

    passages: Path
    queries: Path
    qrels: Path

    def asked(self) -> dict[str, list[dict[str, str]]]:
        """The queries of each split that has some."""
        rows = Queries.read(self.queries).to_pylist()
        return {split: found for split in SPLITS if (found := [row for row in rows if row["split"] == split])}

    def judged(self, queries: list[dict[str, str]]) -> Iterator[dict[str, Any]]:
        """The judgements of some queries, in file order."""
        wanted = pa.array([row["query_id"] for row in queries], pa.string())
        for batch in Qrels.stream(self.qrels):
            yield from batch.filter(pc.is_in(batch["query_id"], wanted)).to_pylist()


def beir(tables: Tables, folder: Path) -> None:
    """corpus.jsonl, queries.jsonl and qrels/SPLIT.tsv; documents of several passages keep their order."""
    columns = {"_id": "passage_id", "title": "title", "text": "text", "doc_id": "document_id", "position": "position"}
    asked = tables.asked()
    _lines(folder / "corpus.jsonl", _objects(rows_of(Passages.stream(tables.passages)), columns))
    queries = (row for split in asked.values() for row in split)
    _lines(folder / "queries.jsonl", _objects(queries, {"_id": "query_id", "text": "text"}))
    for split, rows in asked.items():
        path = folder / "qrels" / f"{split}.tsv"
        judged = ((row["query_id"], row["passage_id"], row["relevance"]) for row in tables.judged(rows))
        _lines(path, _table([("query-id", "corpus-id", "score"), *judged], path))


def msmarco(tables: Tables, folder: Path) -> None:
    """collection.tsv, para.title.txt where there are titles, queries.SPLIT.tsv and qrels.SPLIT.tsv.

    A line is a row there: tabs and line ends within texts become blanks. Documents are not part of that form.
    """
    path = folder / "collection.tsv"
    _lines(path, _table(((row["passage_id"], plain(row["text"])) for row in _passages(tables)), path))
    if any(row["title"] for row in _passages(tables)):
        path = folder / "para.title.txt"
        titles = ((row["passage_id"], plain(row["title"]) or UNTITLED) for row in _passages(tables))
        _lines(path, _table(titles, path))
    for split, asked in tables.asked().items():
        path = folder / f"queries.{split}.tsv"
        _lines(path, _table(((row["query_id"], plain(row["text"])) for row in asked), path))
        path = folder / f"qrels.{split}.tsv"
        judged = tables.judged(asked)
        _lines(path, _table(((row["query_id"], 0, row["passage_id"], row["relevance"]) for row in judged), path))


def _passages(tables: Tables) -> Iterator[dict[str, Any]]:
    return rows_of(Passages.stream(tables.passages, ["passage_id", "title", "text"]))


FORMS: dict[str, Callable[[Tables, Path], None]] = {"beir": beir, "msmarco": msmarco}


def plain(text: str) -> str:
    """A text on one line, without tabs."""
    return " ".join(text.split())


def _objects(rows: Iterable[dict[str, Any]], columns: dict[str, str]) -> Iterator[str]:
    for row in rows:
        yield json.dumps({theirs: row[ours] for theirs, ours in columns.items()}, ensure_ascii=False)


def _table(rows: Iterable[tuple[Any, ...]], path: Path) -> Iterator[str]:
    """Rows as lines. Raises `Refusal`: an id holds a tab or a line end, or a row is blank."""
    for number, row in enumerate(rows, start=1):
        cells = [str(cell) for cell in row]
        for cell in cells:
            if "\t" in cell or len(cell.splitlines()) > 1 or cell != cell.rstrip("\r\n"):
                raise Refusal(f"{path} (writing): row {number}: {cell!r} does not fit into a column")
        yield "\t".join(cells)


def _lines(path: Path, lines: Iterable[str]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", encoding="utf-8", newline="\n") as file:
        file.writelines(f"{line}\n" for line in lines)
