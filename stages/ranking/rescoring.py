"""A run's pairs scored by a cross-encoder: shard by shard, resumable, and how much better than the run that ranks."""

import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np
import pyarrow as pa

from stages.artifacts.judgements import Asked
from stages.artifacts.ragged import Ragged
from stages.embedding.probe import CUTOFF
from stages.ranking.crossencoder import CrossEncoder, Pairs, score
from stages.ranking.known import Known
from stages.ranking.rankings import Rankings
from stages.ranking.runs import ranks_within
from stages.ranking.shards import Shards
from stages.training.processes import Processes
from stages.training.progress import Progress

WARNING = (
    "WARNING: the reranker does not rank dev better than the run that it re-ranks.\n"
    "A retriever distilled from it learns from a teacher that knows no more than itself."
)
QUERIES = 64  # queries of a shard
NOWHERE = -1


@dataclass(frozen=True)
class Choice:
    """Which pairs are scored.

    Attributes:
        depth: passages of the run per query.
        positives: row i holds the positives of query i.
        added: positives per query that are scored whether or not this leaves them out, at most: where a query has
            more, so many are drawn, the same ones in every run.
    """

    asking: Asked
    ids: pa.Array
    positives: Ragged
    depth: int
    added: int


@dataclass(frozen=True)
class Part:
    """The rankings of a few queries.

    Attributes:
        queries: [q] rows of the asked queries.
        ranking: row i holds the run's whole ranking of queries[i], as passage rows, best first.
        scored: row i holds the passages of queries[i] that are scored: the first of the ranking, then added positives.
        known: [pairs] the run's own score of every scored pair; its lowest for a positive that it lacks.
    """

    queries: np.ndarray
    ranking: Ragged
    scored: Ragged
    known: np.ndarray

    @property
    def owners(self) -> np.ndarray:
        """[pairs] place among ``queries`` of every scored pair."""
        return np.repeat(np.arange(len(self.queries)), self.scored.lengths)


def parts(rankings: Rankings, choice: Choice) -> Iterator[Part]:
    """The asked queries of a run in parts of `QUERIES`, in the run's order, then those whose positives it lacks."""
    judged = np.flatnonzero(choice.positives.lengths > 0)
    absent = np.setdiff1d(judged, rankings.queries) if choice.added else judged[:0]
    places = np.concatenate([np.arange(len(rankings.queries)), np.full(len(absent), NOWHERE)])
    queries = np.concatenate([rankings.queries, absent]).astype(np.int64)
    for start in range(0, len(queries), QUERIES):
        some = slice(start, start + QUERIES)
        yield _part(queries[some], places[some], rankings, choice)


def _part(queries: np.ndarray, places: np.ndarray, rankings: Rankings, choice: Choice) -> Part:
    """Some queries that stand at some places of the rankings, or nowhere."""
    there = places[places != NOWHERE]  # the absent ones come last
    ranking, scores = (of.take(there) for of in (rankings.rows, rankings.scores))
    offsets = np.pad(ranking.offsets, (0, len(queries) - len(there)), mode="edge")
    ranking = Ragged(ranking.values, offsets)
    rows = [ranking.values[first:last] for first, last in pairwise(offsets)]
    scored = Ragged.of((_scored(query, row, choice) for query, row in zip(queries, rows, strict=True)), np.int64)
    owners = np.repeat(np.arange(len(queries)), ranking.lengths)
    known = Known.of(owners, ranking.values, scores.values, len(queries), len(choice.ids))
    return Part(queries, ranking, scored, known.or_lowest(scored))


def score_all(
    model: CrossEncoder, pairs: Pairs, rankings: Rankings, choice: Choice, shards: Shards, processes: Processes
) -> None:
    """Score this process's share of the parts that are still without scores."""
    with Progress("rescore", len(choice.asking), "queries") as bar:
        for number, part in enumerate(parts(rankings, choice)):
            if number % processes.world == processes.rank and not shards.has(number):
                began = time.monotonic()
                owners = part.queries[part.owners]
                scores = score(model, pairs, owners, part.scored.values)
                shards.save(number, scores, len(scores), time.monotonic() - began)
            bar.advance(len(part.queries))
    processes.wait()


def reordered(part: Part, scores: np.ndarray, order: np.ndarray, keep_rest: bool) -> tuple[np.ndarray, ...]:
    """A part's rows of a Run in the total order: query rows, passage rows, scores, ranks.

    Args:
        order: [passages] the place of each passage's id among the sorted ids: decides ties.
        keep_rest: what the run ranks behind the scored passages follows in its old order, every score one below
            the one before.
    """
    owners, rows = part.owners, part.scored.values
    if keep_rest:
        lowest = np.full(len(part.queries), np.inf, dtype=np.float32)
        np.minimum.at(lowest, owners, scores)
        whole = [part.ranking.take(np.array([i])).values for i in range(len(part.queries))]
        rest = [r[~np.isin(r, part.scored.take(np.array([i])).values)] for i, r in enumerate(whole)]
        behind = Ragged.of(rest, np.int64)
        of = np.repeat(np.arange(len(rest)), behind.lengths)
        owners, rows = np.concatenate([owners, of]), np.concatenate([rows, behind.values])
        scores = np.concatenate([scores, np.floor(lowest)[of] - ranks_within(of)]).astype(np.float32)
    places = np.lexsort((order[rows], -scores, owners))
    owners = owners[places]
    return part.queries[owners], rows[places], scores[places], ranks_within(owners)


@dataclass
class Gate:
    """RR@10 of a run and of its re-ranking over the dev queries that have a positive."""

    choice: Choice
    order: np.ndarray
    is_dev: np.ndarray
    before: list[float] = field(default_factory=list)
    after: list[float] = field(default_factory=list)

    def see(self, part: Part, scores: np.ndarray) -> None:
        """Count a part's dev queries; added positives take no part."""
        for i in np.flatnonzero(self.is_dev[part.queries]):
            positives = self.choice.positives.take(part.queries[[i]]).values
            ranking = part.ranking.take(np.array([i])).values
            top = ranking[: self.choice.depth]
            mine = scores[part.scored.offsets[i] : part.scored.offsets[i] + len(top)]
            better = top[np.lexsort((self.order[top], -mine))]
            if len(positives):
                self.before.append(reciprocal(ranking, positives))
                self.after.append(reciprocal(np.concatenate([better, ranking[len(top) :]]), positives))

    def told(self) -> dict[str, float]:
        """{"queries": n, "run RR@10": …, "reranked RR@10": …}; empty where no dev query was seen."""
        if not self.before:
            return {}
        means = {"run RR@10": float(np.mean(self.before)), "reranked RR@10": float(np.mean(self.after))}
        return {"queries": len(self.before), **means}

    def warn(self) -> None:
        """Say on standard error what the re-ranking is worth; loudly where it is worth nothing."""
        told = self.told()
        if told:
            before, after = told["run RR@10"], told["reranked RR@10"]
            print(f"rescore: dev RR@10 {before:.4f} as ranked by the run, {after:.4f} re-ranked", file=sys.stderr)
            if after <= before:
                print("=" * 100, WARNING, "=" * 100, sep="\n", file=sys.stderr, flush=True)


def reciprocal(ranking: np.ndarray, positives: np.ndarray) -> float:
    """1 / rank of the first positive, 0 where none is among the first ten."""
    found = np.flatnonzero(np.isin(ranking[:CUTOFF], positives))
    return 1.0 / (found[0] + 1) if len(found) else 0.0


def _scored(query: int, ranking: np.ndarray, choice: Choice) -> np.ndarray:
    top = ranking[: choice.depth]
    positives = choice.positives.take(np.array([query])).values
    drawn = np.sort(np.random.default_rng(query).permutation(positives)[: choice.added])
    return np.concatenate([top, drawn[~np.isin(drawn, top)]])
