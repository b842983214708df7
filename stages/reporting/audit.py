"""Where a chain's hard negatives come from, how hard they are, and how many may be unjudged positives.

Every round of training draws its negatives from a pool: what one run ranks high and no rule removes. The pools are
formed here as training forms them (`stages.ranking.groups`), and each pair is looked up in all runs of the chain. One
judge, the latest run over the training queries, measures all pools, so that rounds can be compared.

How many negatives are false is estimated by the cross-encoder, as RocketQA (Qu et al. 2021, section 3.2.2) filters
them: a negative that outscores a known positive of its query. Against the best positive that is the lower of two
estimates, against the weakest the higher one.
"""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from stages.artifacts.judgements import Asked
from stages.ranking.groups import Groups, Inputs, Rules, read_groups
from stages.reporting.places import Places, best_per_row, pairs_of, placed

# what is trained ← the run that proposes its negatives (dvc.yaml)
ROUNDS = {"retriever1": "bm25", "retriever2": "retriever1", "reranker": "retriever2", "retriever": "teacher"}
RANKERS = ("bm25", "retriever1", "retriever2")
TEACHER = "teacher"
BANDS = ((1, 10), (11, 50), (51, 200), (201, 1000))  # ranks; behind the last stands what is not ranked


@dataclass(frozen=True)
class Round:
    """One pool of negatives.

    Attributes:
        groups: the sampled training queries with their pool.
        at: [negatives] where the pool's pairs stand among the audit's pairs.
    """

    name: str
    source: str
    groups: Groups
    at: np.ndarray

    @property
    def owners(self) -> np.ndarray:
        """[negatives] the group of every pair of the pool."""
        return np.repeat(np.arange(len(self.groups)), self.groups.negatives.lengths)


@dataclass(frozen=True)
class Audit:
    """All pools of a chain and what every run says of their pairs.

    Attributes:
        pairs: [n] ascending numbers group · passages + row of all positives and negatives.
        positives: [positives] where the known positives stand among the pairs.
        places: by run.
    """

    asking: Asked
    ids: pa.Array
    rounds: list[Round]
    pairs: np.ndarray
    positives: np.ndarray
    places: dict[str, Places] = field(default_factory=dict)

    @property
    def groups(self) -> Groups:
        """The sampled queries and their positives, alike in all rounds."""
        return self.rounds[0].groups

    @property
    def judge(self) -> str:
        """The run whose scores compare the rounds: the latest that ranks training queries."""
        return next(name for name in reversed(RANKERS) if name in self.places)

    def margins(self, one: Round, run: str) -> np.ndarray:
        """[negatives] score of the negative minus that of its query's best positive; NaN where one is not ranked."""
        best = best_per_row(self.places[run].score[self.positives], self.groups.positives)
        margins: np.ndarray = self.places[run].score[one.at] - best[one.owners]
        return margins

    def false_share(self, one: Round) -> tuple[int, float, float] | None:
        """(negatives that the teacher scored, share above the best positive, share above the weakest one)."""
        if TEACHER not in self.places:
            return None
        score, positive = self.places[TEACHER].score[one.at], self.places[TEACHER].score[self.positives]
        scored = np.flatnonzero(~np.isnan(score))
        if not len(scored):
            return None
        owners = one.owners[scored]
        best, weakest = (best_per_row(positive, self.groups.positives, worst)[owners] for worst in (False, True))
        return len(scored), float((score[scored] > best).mean()), float((score[scored] > weakest).mean())


def audited(inputs: Inputs, runs: Path, params: dict[str, Any], seed: int, sample: int) -> Audit | None:
    """The audit of the rounds whose runs are in a folder; None where there is none.

    Args:
        inputs: the tables; its runs are not looked at.
        params: parameters by group; those of a round say which ranks give negatives, as in training.
        sample: training queries looked at, drawn with ``seed``; all where there are fewer.
    """
    found: list[tuple[str, str, Groups]] = []
    asking, ids, fraction = None, None, 1.0
    for name, source in ROUNDS.items():
        run = runs / f"{source}.parquet"
        if not run.is_file() or name not in params:
            continue
        asking, ids, groups = read_groups(_with(inputs, run), rules_of(params[name]), seed, fraction)
        if sample < len(groups):
            fraction = sample / len(groups)
            asking, ids, groups = read_groups(_with(inputs, run), rules_of(params[name]), seed, fraction)
        found.append((name, source, groups))
    return _joined(asking, ids, found, runs) if asking is not None else None


def rules_of(group: dict[str, Any]) -> Rules:
    """The rules in a params group of a training stage."""
    known = {"first": "first", "depth": "last", "margin": "margin"}
    return Rules(**{ours: group[theirs] for theirs, ours in known.items() if group.get(theirs) is not None})


def _with(inputs: Inputs, run: Path) -> Inputs:
    return Inputs(inputs.tokens, inputs.queries, inputs.qrels, inputs.passages, run)


def _joined(asking: Asked, ids: pa.Array, found: list[tuple[str, str, Groups]], runs: Path) -> Audit:
    count, first = len(ids), found[0][2]
    known = pairs_of(first.positives, count)
    pools = [pairs_of(groups.negatives, count) for _, _, groups in found]
    pairs = np.unique(np.concatenate([known, *pools]))
    rounds = [Round(*one, np.searchsorted(pairs, pool)) for one, pool in zip(found, pools, strict=True)]
    group_of = np.full(len(asking), -1, dtype=np.int64)
    group_of[first.queries] = np.arange(len(first))
    paths = {name: runs / f"{name}.parquet" for name in (*RANKERS, TEACHER)}
    places = {name: placed(path, asking, group_of, ids, pairs) for name, path in paths.items() if path.is_file()}
    return Audit(asking, ids, rounds, pairs, np.searchsorted(pairs, known), places)


def summary(audit: Audit) -> list[dict[str, Any]]:
    """One row a round: how many negatives, from where, how hard, how many may be false."""
    rows, before = [], None
    for one in audit.rounds:
        margins = audit.margins(one, audit.judge)
        rows.append(
            {
                "name": one.name,
                "source": one.source,
                "counts": one.groups.counts,
                "per_query": len(one.at) / len(one.groups),
                "ranks": {run: _middle(audit.places[run].rank[one.at]) for run in RANKERS if run in audit.places},
                "known": None if before is None else float(np.isin(one.at, before.at).mean()),
                "harder": float((margins > 0).sum() / max(1, len(margins))),
                "margin": float(np.nanmedian(margins)) if np.isfinite(margins).any() else None,
                "false": audit.false_share(one),
            }
        )
        before = one
    return rows


def bands(audit: Audit) -> list[dict[str, Any]]:
    """How much of every pool each run ranks where: {round, run, band, place, share}."""
    rows = []
    for run in (name for name in RANKERS if name in audit.places):
        for one in audit.rounds:
            rank = audit.places[run].rank[one.at]
            shares = [((rank >= low) & (rank <= high)).mean() for low, high in BANDS]
            names = [f"{low}–{high:,}" for low, high in BANDS]
            behind = f"behind {BANDS[-1][1]:,}", 1 - sum(shares)
            for place, (name, share) in enumerate([*zip(names, shares, strict=True), behind]):
                told = {"round": one.name, "run": run, "band": name, "place": place}
                rows.append(told | {"share": round(float(share), 6)})
    return rows


def difficulty(audit: Audit, bins: int = 40) -> list[dict[str, Any]]:
    """How the margins of every pool are spread, as shares of the pool: {round, margin, share}."""
    margins = {one.name: audit.margins(one, audit.judge) for one in audit.rounds}
    known = np.concatenate([values[np.isfinite(values)] for values in margins.values()])
    if not len(known):
        return []
    low, high = np.quantile(known, [0.005, 0.995]).tolist()
    edges = np.linspace(low, high, bins + 1)
    rows = []
    for name, values in margins.items():
        counts, _ = np.histogram(values[np.isfinite(values)], edges)
        for left, right, count in zip(edges[:-1], edges[1:], counts, strict=True):
            share = round(float(count / max(1, len(values))), 6)
            rows.append({"round": name, "margin": round(float((left + right) / 2), 5), "share": share})
    return rows


def false_by_rank(audit: Audit) -> list[dict[str, Any]]:
    """Share of negatives at each rank of the judge that outscore the query's best positive: {rank, share, count}."""
    if TEACHER not in audit.places:
        return []
    taught = [one for one in audit.rounds if one.source == TEACHER]
    rows = []
    for one in taught:
        rank, margins = audit.places[audit.judge].rank[one.at], audit.margins(one, TEACHER)
        for value in np.unique(rank[(rank > 0) & np.isfinite(margins)]):
            chosen = margins[rank == value] > 0
            if len(chosen) >= 20:  # fewer say nothing
                rows.append({"rank": int(value), "share": round(float(chosen.mean()), 6), "count": len(chosen)})
    return rows


def _middle(ranks: np.ndarray) -> float:
    """The median rank; infinite where half of the pairs or more are not ranked."""
    return float(np.median(np.where(ranks == 0, np.inf, ranks))) if len(ranks) else float("inf")
