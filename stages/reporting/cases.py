"""Queries that one run wins or loses most clearly against another, as in the case studies of the papers."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from stages.artifacts.judgements import Asked
from stages.artifacts.ragged import Ragged
from stages.artifacts.tables import Run
from stages.reporting.places import best_per_row, pairs_of, placed

TOP = 3  # passages shown of each ranking


@dataclass(frozen=True)
class Ranked:
    """One ranking of a query: where its best known answer stands (0: nowhere), and what stands first."""

    run: str
    rank: int
    top: list[str]


@dataclass(frozen=True)
class Case:
    """One query, its known answers, and the two rankings."""

    query_id: str
    query: str
    gold: list[str]
    ours: Ranked
    theirs: Ranked

    @property
    def passage_ids(self) -> list[str]:
        """Of all passages shown."""
        return [*self.gold[:1], *self.ours.top, *self.theirs.top]


@dataclass(frozen=True)
class Match:
    """One run against another: how often it ranks the first answer higher, and the clearest cases."""

    ours: str
    theirs: str
    wins: int
    losses: int
    won: list[Case]
    lost: list[Case]


def matched(runs: Path, ours: str, theirs: str, asking: Asked, ids: pa.Array, positives: Ragged, count: int) -> Match:
    """The match over the judged queries, and its ``count`` clearest wins and losses.

    Clearest: the greatest difference of reciprocal ranks of the first answer, then the greatest ratio of those
    ranks, then the query_id.
    """
    first = {name: first_answers(runs / f"{name}.parquet", asking, ids, positives) for name in (ours, theirs)}
    judged = np.flatnonzero(positives.lengths)
    mine, other = (_reciprocal(first[name][judged]) for name in (ours, theirs))
    gap = mine - other
    ratio = np.log(np.maximum(mine, 1e-6)) - np.log(np.maximum(other, 1e-6))
    names = asking.ids.to_numpy(zero_copy_only=False)[judged].astype(str)
    order = np.lexsort((names, -ratio, -gap))
    won = [int(judged[i]) for i in order if gap[i] > 0][:count]
    order = np.lexsort((names, ratio, gap))
    lost = [int(judged[i]) for i in order if gap[i] < 0][:count]
    tops = {name: _tops(runs / f"{name}.parquet", asking, won + lost) for name in (ours, theirs)}

    def case(query: int) -> Case:
        gold = [ids[int(row)].as_py() for row in positives.take(np.array([query])).values]
        name = asking.ids[query].as_py()
        sides = [Ranked(run, int(first[run][query]), tops[run].get(name, [])) for run in (ours, theirs)]
        return Case(name, asking.texts[query], gold, *sides)

    cases = [case(query) for query in won], [case(query) for query in lost]
    return Match(ours, theirs, int((gap > 0).sum()), int((gap < 0).sum()), *cases)


def first_answers(run: Path, asking: Asked, ids: pa.Array, positives: Ragged) -> np.ndarray:
    """[queries] int64 rank of the best ranked positive, 0 where none is ranked."""
    places = placed(run, asking, np.arange(len(asking)), ids, pairs_of(positives, len(ids)))
    ranks = np.where(places.rank == 0, np.nan, places.rank).astype(np.float32)
    first: np.ndarray = np.nan_to_num(best_per_row(ranks, positives, worst=True), nan=0).astype(np.int64)
    return first


def _reciprocal(ranks: np.ndarray) -> np.ndarray:
    return np.where(ranks > 0, 1 / np.maximum(ranks, 1), 0.0)


def _tops(run: Path, asking: Asked, queries: list[int]) -> dict[str, list[str]]:
    """The first passages of some queries."""
    wanted, found = asking.ids.take(pa.array(queries, pa.int64())), dict[str, list[str]]()
    for batch in Run.stream(run, ["query_id", "passage_id", "rank"]):
        kept = batch.filter(pc.and_(pc.less_equal(batch["rank"], TOP), pc.is_in(batch["query_id"], wanted)))
        for row in kept.to_pylist():
            found.setdefault(row["query_id"], []).append(row["passage_id"])
    return found
