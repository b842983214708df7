"""A run as integers: its strings are looked up once, however often its rankings are walked through."""

import tempfile
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import IO, Any

import numpy as np
import pyarrow as pa

from stages.artifacts.judgements import Asked, rows_in
from stages.artifacts.ragged import Ragged
from stages.artifacts.refusal import Refusal
from stages.ranking.runs import Ranking, by_query

QUERIES = 1_024  # whose passages are looked up together


@dataclass(frozen=True)
class Rankings:
    """The rankings of some queries; values lie in unnamed files that are mapped, not in memory.

    Attributes:
        queries: [n] rows of the asked queries, in the run's order.
        rows: row i holds the passage rows of queries[i], best first.
        scores: row i holds their scores.
    """

    queries: np.ndarray
    rows: Ragged
    scores: Ragged


def read_rankings(run: Path | str, asking: Asked, ids: pa.Array) -> Rankings:
    """The asked queries of a run.

    Raises:
        Refusal: the run holds a passage that is not among ``ids``, or is out of order.
    """
    place = {query_id: row for row, query_id in enumerate(asking.ids.to_pylist())}
    ours = (ranking for ranking in by_query(run) if ranking[0] in place)
    queries: list[int] = []
    lengths = [0]
    with tempfile.TemporaryFile() as rows, tempfile.TemporaryFile() as scores:
        while some := list(islice(ours, QUERIES)):
            _looked_up(some, ids, run).tofile(rows)
            np.concatenate([found for _, _, found in some]).astype(np.float32).tofile(scores)
            queries += [place[query_id] for query_id, _, _ in some]
            lengths += [len(passages) for _, passages, _ in some]
        offsets = np.cumsum(np.array(lengths, dtype=np.int64))
        mapped = _mapped(rows, np.int64, offsets), _mapped(scores, np.float32, offsets)
    return Rankings(np.array(queries, dtype=np.int64), *mapped)


def _looked_up(some: list[Ranking], ids: pa.Array, run: Path | str) -> np.ndarray:
    names = [name for _, passages, _ in some for name in passages]
    rows = rows_in(pa.array(names, pa.string()), ids)
    unknown = np.flatnonzero(rows < 0)
    if len(unknown):
        owners = np.repeat(np.arange(len(some)), [len(passages) for _, passages, _ in some])
        query_id, name = some[owners[unknown[0]]][0], names[unknown[0]]
        raise Refusal(f"{run}: query {query_id}: passage_id {name} is not among the tokens'")
    return rows


def _mapped(file: IO[bytes], dtype: Any, offsets: np.ndarray) -> Ragged:
    file.flush()
    return Ragged(np.memmap(file, dtype=dtype, mode="r") if offsets[-1] else np.empty(0, dtype), offsets)
