"""``msmarco_documents:DIR``: msmarco-docs.tsv with doctrain's and docdev's queries and qrels, as MS MARCO ships them.

https://microsoft.github.io/msmarco/Datasets. A document is one passage; its title is the address and the title, so that
cut to its first pieces it is FirstP (address, title, body) of ANCE and SEED. `chunks` cuts it for MaxP.
"""

from collections.abc import Iterator
from pathlib import Path

from stages.artifacts.refusal import Refusal
from stages.sources.collection import Judgement, Passage, Query
from stages.sources.lines import columns, count_lines, rows
from stages.sources.tabular import judgements_of, tsv_queries

NAMES = {"train": "doctrain", "dev": "docdev"}


class MsMarcoDocuments:
    """The `Source`."""

    def __init__(self, folder: Path):
        self.documents = folder / "msmarco-docs.tsv"
        files = {split: folder / f"msmarco-{name}-qrels.tsv" for split, name in NAMES.items()}
        self.qrels = {split: path for split, path in files.items() if path.exists()}
        if not self.qrels:
            raise Refusal(f"{folder}: neither {' nor '.join(path.name for path in files.values())} is there")

    def count(self) -> int:
        return count_lines(self.documents)

    def passages(self) -> Iterator[Passage]:
        for row, line in rows(self.documents):
            name, address, title, body = columns(line, 4, self.documents, row)
            yield Passage(name, name, 0, f"{address} {title}".strip(), body, str(self.documents), row)

    def queries(self) -> Iterator[Query]:
        for split in self.qrels:
            yield from tsv_queries(self.documents.with_name(f"msmarco-{NAMES[split]}-queries.tsv"))

    def judgements(self) -> Iterator[Judgement]:
        for split, path in self.qrels.items():
            yield from judgements_of(split, path)


def read(rest: str, words: int) -> MsMarcoDocuments:
    """The reader of ``msmarco_documents:rest``. Raises `Refusal` where there are no qrels."""
    return MsMarcoDocuments(Path(rest))
