"""Who asks, what is there to find, and what is known to answer: queries of a split, ids, positives."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from stages.artifacts.ragged import Ragged
from stages.artifacts.refusal import Refusal
from stages.artifacts.tables import Qrels, Queries, Table, Tokens


@dataclass(frozen=True)
class Asked:
    """The queries of one split or several.

    Attributes:
        ids: [n] strings.
        texts: [n] strings.
        splits: [n] strings.
        path: where they came from, for messages.
    """

    ids: pa.Array
    texts: list[str]
    splits: np.ndarray
    path: Path | str

    def __len__(self) -> int:
        return len(self.texts)


def asked(path: Path | str, splits: list[str]) -> Asked:
    """The queries of some splits, in file order.

    Raises:
        Refusal: there is none.
    """
    table = Queries.read(path)
    table = table.filter(pc.is_in(table["split"], pa.array(splits, pa.string())))
    if not table.num_rows:
        raise Refusal(f"{path}: no query of split {' or '.join(splits)}")
    return Asked(table["query_id"].combine_chunks(), table["text"].to_pylist(), table["split"].to_numpy(), path)


def passage_ids(path: Path | str, table: Table = Tokens) -> pa.Array:
    """The ids of a table's passages in file order.

    Raises:
        Refusal: there is none.
    """
    ids = table.read(path, ["passage_id"])["passage_id"].combine_chunks()
    if not len(ids):
        raise Refusal(f"{path}: no passages")
    return ids


def sorted_places(ids: pa.Array) -> np.ndarray:
    """[n] int64 place of every id among the sorted ids (by code point): what decides ties."""
    places = np.empty(len(ids), dtype=np.int64)
    places[pc.array_sort_indices(ids).to_numpy()] = np.arange(len(ids))
    return places


def judged(qrels: Path | str, queries: Asked, ids: pa.Array) -> Ragged:
    """The positives (relevance above 0) of every query, as ascending rows of ``ids``; empty where it has none.

    Raises:
        Refusal: a query of ours is judged on a passage that is not among ``ids``.
    """
    owners, rows = [], []
    start = 0
    for batch in Qrels.stream(qrels):
        owner, relevance = rows_in(batch.column("query_id"), queries.ids), batch.column("relevance").to_numpy()
        ours = np.flatnonzero((owner >= 0) & (relevance > 0))
        row = known_rows(batch.column("passage_id"), ours, ids, qrels, start)
        owners.append(owner[ours])
        rows.append(row)
        start += batch.num_rows
    pairs = np.unique(np.stack([joined(owners), joined(rows)], axis=1), axis=0)
    return ragged(pairs[:, 0], pairs[:, 1], len(queries))


def ragged(owners: np.ndarray, values: np.ndarray, rows: int) -> Ragged:
    """Values grouped by owner (0 … rows − 1), their order kept."""
    order = np.argsort(owners, kind="stable")
    offsets = np.concatenate([[0], np.cumsum(np.bincount(owners, minlength=rows))]).astype(np.int64)
    return Ragged(values[order], offsets)


def rows_in(values: pa.Array, ids: pa.Array) -> np.ndarray:
    """[n] int64 places of values among ids, −1 where absent."""
    found: np.ndarray = pc.fill_null(pc.index_in(values, value_set=ids), -1).to_numpy(zero_copy_only=False)
    return found.astype(np.int64)


def known_rows(names: pa.Array, kept: np.ndarray, ids: pa.Array, path: Path | str, start: int) -> np.ndarray:
    """Rows of ``ids`` of the names at some places of a column that starts at row ``start`` of a file.

    Raises:
        Refusal: one is unknown.
    """
    rows = rows_in(names.take(pa.array(kept)), ids)
    unknown = np.flatnonzero(rows < 0)
    if len(unknown):
        row = int(kept[unknown[0]])
        raise Refusal(f"{path}: row {start + row}: passage_id {names[row]} is not among the tokens'")
    return rows


def joined(parts: list[np.ndarray]) -> np.ndarray:
    """All parts behind one another."""
    return np.concatenate(parts) if parts else np.empty(0, dtype=np.int64)
