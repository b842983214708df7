"""A small piece of the collection on which every stage is tried."""

from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from stages.artifacts.refusal import Refusal
from stages.artifacts.tables import Passages, Qrels, Queries

SPLITS = {"train": 32, "dev": 8, "test": 8}  # queries in a sample
PASSAGES = 160  # in a sample, the queries' positives among them


@dataclass(frozen=True)
class Sizes:
    """Rows of a collection.

    Attributes:
        queries: split → queries with a positive.
        positives: split → positives of these queries together.
    """

    passages: int
    queries: dict[str, int]
    positives: dict[str, int] = field(default_factory=dict)

    def asked(self, splits: list[str] | None) -> int:
        """Queries of some splits, of all three by default."""
        return sum(self.queries.get(split, 0) for split in splits or SPLITS)

    def judged(self, splits: list[str] | None) -> int:
        """Positives of the queries of some splits, of all three by default."""
        return sum(self.positives.get(split, 0) for split in splits or SPLITS)


@dataclass(frozen=True)
class Tables:
    """Where passages, queries and qrels lie."""

    passages: Path
    queries: Path
    qrels: Path

    def under(self, folder: Path) -> "Tables":
        """The same paths in another folder."""
        return Tables(folder / self.passages, folder / self.queries, folder / self.qrels)

    @property
    def there(self) -> bool:
        """Whether all three exist."""
        return self.passages.is_file() and self.queries.is_file() and self.qrels.is_file()


def draw(source: Tables, target: Tables) -> tuple[Sizes, Sizes]:
    """Write a sample of ``source``'s passages, queries and qrels into ``target``; the sizes of both.

    The sample is spread over the collection, in its order, so that its lengths are the collection's.

    Raises:
        Refusal: a table is missing, or no training query has a positive.
    """
    judged = Qrels.read(source.qrels)
    judged = judged.filter(pc.greater(judged["relevance"], 0))
    queries = Queries.read(source.queries)
    queries = queries.filter(pc.is_in(queries["query_id"], judged["query_id"].combine_chunks()))
    chosen = pa.concat_tables([_spread(_of(queries, split), count) for split, count in SPLITS.items()])
    positives = judged.filter(pc.is_in(judged["query_id"], chosen["query_id"].combine_chunks()))
    if not len(_of(chosen, "train")):
        raise Refusal(f"{source.qrels}: no training query has a positive")
    total = Passages.count(source.passages)
    wanted = set(positives["passage_id"].to_pylist())
    strangers = set(np.linspace(0, total - 1, max(PASSAGES - len(wanted), 0)).astype(int).tolist())
    kept, start = [], 0
    for batch in Passages.stream(source.passages):
        ids = batch.column("passage_id").to_pylist()
        rows = [row for row, name in enumerate(ids) if name in wanted or start + row in strangers]
        kept.append(pa.Table.from_batches([batch]).take(pa.array(rows, pa.int64())))
        start += batch.num_rows
    passages = pa.concat_tables(kept)
    Passages.write(target.passages, passages)
    Queries.write(target.queries, chosen)
    Qrels.write(target.qrels, positives)
    return _sizes(total, queries, judged), _sizes(len(passages), chosen, positives)


def _sizes(passages: int, queries: pa.Table, positives: pa.Table) -> Sizes:
    ids = {split: _of(queries, split)["query_id"].combine_chunks() for split in SPLITS}
    theirs = {split: positives.filter(pc.is_in(positives["query_id"], some)) for split, some in ids.items()}
    return Sizes(passages, *({split: len(rows) for split, rows in by.items()} for by in (ids, theirs)))


def _of(queries: pa.Table, split: str) -> pa.Table:
    return queries.filter(pc.equal(queries["split"], split))


def _spread(rows: pa.Table, count: int) -> pa.Table:
    return rows.take(pa.array(np.unique(np.linspace(0, max(len(rows) - 1, 0), min(count, len(rows))).astype(int))))
