"""Which passages each training query may learn from: its positives, and the negatives a run proposes for it."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import pyarrow as pa

from stages.artifacts.identity import digest, normalised
from stages.artifacts.judgements import Asked, asked, joined, judged, known_rows, passage_ids, ragged, rows_in
from stages.artifacts.ragged import Ragged
from stages.artifacts.refusal import Refusal
from stages.artifacts.tables import Passages, Run
from stages.ranking.answered import answering, read_answers
from stages.ranking.known import Known


@dataclass(frozen=True)
class Rules:
    """What makes a passage of the run no negative.

    Attributes:
        first: ranks before this one are skipped: the top of a good run is full of unjudged positives.
        last: ranks after this one are skipped.
        margin: passages that score more than the query's best positive minus this are skipped; no passage is where
            the run has no positive up to the last rank.
    """

    first: int = 1
    last: int = 200
    margin: float | None = None


@dataclass(frozen=True)
class Groups:
    """Training queries with their positives and negatives, as rows of the Tokens table.

    Attributes:
        queries: [n] rows of ``texts_of_queries``.
        positives: row i holds the positives of query i, ascending.
        negatives: row i holds the negatives of query i, best first; empty where there is no run.
        same: [passages] a number that two passages share if their normalised texts are the same.
        teacher: the teacher's scores of ``positives`` and ``negatives``, value for value; None without a teacher. NaN
            where it has not scored a positive: nothing is learnt from that one, but it stays no negative.
        counts: how many queries and candidates every rule removed.
    """

    queries: np.ndarray
    positives: Ragged
    negatives: Ragged
    same: np.ndarray
    teacher: tuple[np.ndarray, np.ndarray] | None = None
    counts: dict[str, int] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.queries)


@dataclass(frozen=True)
class Inputs:
    """The tables from which groups are formed: runs of negatives, a teacher's run, answers."""

    tokens: Path
    queries: Path
    qrels: Path
    passages: Path
    negatives: Path | tuple[Path, ...] | None = None
    teacher: Path | None = None
    answers: Path | None = None

    @property
    def runs(self) -> tuple[Path, ...]:
        """The runs of negatives."""
        return (self.negatives,) if isinstance(self.negatives, Path) else self.negatives or ()

    @property
    def paths(self) -> list[Path]:
        """Those that are there."""
        single = [self.tokens, self.queries, self.qrels, self.passages, self.teacher, self.answers]
        return [path for path in [*single, *self.runs] if path is not None]


def read_groups(inputs: Inputs, rules: Rules, seed: int, fraction: float) -> tuple[Asked, pa.Array, Groups]:
    """The training queries, the passages' ids, and the groups that all rules leave."""
    asking, ids = asked(inputs.queries, ["train"]), passage_ids(inputs.tokens)
    groups = form(asking, judged(inputs.qrels, asking, ids), same_texts(inputs.passages, ids), seed, fraction)
    if inputs.runs:
        groups = with_negatives(groups, inputs.runs, asking, ids, rules)
    if inputs.answers:
        groups = without_answers(groups, inputs.passages, read_answers(inputs.answers, asking))
    if inputs.teacher:
        groups = with_teacher(groups, inputs.teacher, asking, ids)
    return asking, ids, groups


def same_texts(path: Path | str, ids: pa.Array) -> np.ndarray:
    """[passages] uint64: equal where the normalised texts (`identity.normalised`) are.

    Raises:
        Refusal: the passages are not those of ``ids``, in their order.
    """
    out, start = np.empty(len(ids), dtype=np.uint64), 0
    for batch in Passages.stream(path, ["passage_id", "text"]):
        if not batch.column("passage_id").equals(ids.slice(start, batch.num_rows)):
            raise Refusal(f"{path}: rows {start}–{start + batch.num_rows - 1}: passage_ids differ from the tokens'")
        out[start : start + batch.num_rows] = [digest(normalised(text)) for text in batch.column("text").to_pylist()]
        start += batch.num_rows
    if start < len(ids):
        raise Refusal(f"{path}: {start} passages, the tokens have {len(ids)}")
    return out


def form(queries: Asked, positives: Ragged, same: np.ndarray, seed: int = 0, fraction: float = 1.0) -> Groups:
    """Groups without hard negatives yet, for a seeded ``fraction`` of the queries that have a positive.

    Raises:
        Refusal: no query has one.
    """
    with_positive = np.flatnonzero(positives.lengths > 0)
    if not len(with_positive):
        raise Refusal(f"{queries.path}: none of its {len(queries)} training queries has a positive")
    count = max(1, round(fraction * len(with_positive)))
    kept = np.sort(np.random.default_rng([seed, 0]).permutation(with_positive)[:count])
    counts = {"queries": len(kept), "queries_without_positive": len(queries) - len(with_positive)}
    counts["queries_left_out"] = len(with_positive) - count
    empty = Ragged(np.empty(0, dtype=np.int64), np.zeros(count + 1, dtype=np.int64))
    return Groups(kept, positives.take(kept), empty, same, None, counts)


def with_negatives(groups: Groups, runs: Iterable[Path], queries: Asked, ids: pa.Array, rules: Rules) -> Groups:
    """The groups with what runs propose as negatives, and how many candidates every rule removed.

    The rules hold for every run by itself; a passage that several propose counts once.

    Raises:
        Refusal: a run holds unknown passages, or nothing for these queries.
    """
    counts: Counter[str] = Counter()
    owners, rows = [], []
    for run in runs:
        owner, row, removed = _proposed(groups, run, queries, ids, rules)
        counts.update(removed)
        owners.append(owner)
        rows.append(row)
    owner, row = joined(owners), joined(rows)
    if len(owners) > 1:
        once = np.sort(np.unique(owner * len(ids) + row, return_index=True)[1])
        counts["removed_repeated"] = len(owner) - len(once)
        owner, row = owner[once], row[once]
    return _replaced(groups, ragged(owner, row, len(groups)), dict(counts))


def _proposed(
    groups: Groups, run: Path, queries: Asked, ids: pa.Array, rules: Rules
) -> tuple[np.ndarray, np.ndarray, dict[str, int]]:
    """Owners and rows of the negatives that a run proposes, best first, and how many every rule removed."""
    owner, row, rank, score = _candidates(run, groups, queries, ids, rules.last)
    if not len(owner):
        raise Refusal(f"{run}: no rows for the training queries of {queries.path}")
    positive = is_positive(groups, owner, row)
    best = np.full(len(groups), -np.inf)
    np.maximum.at(best, owner[positive], score[positive])
    best[best == -np.inf] = np.inf  # where no positive was found, none is known to be outscored
    reasons = {
        "removed_rank": rank < rules.first,
        "removed_positive": positive,
        "removed_same_text": is_positive(groups, owner, row, by_text=True),
    }
    if rules.margin is not None:
        reasons["removed_margin"] = score > best[owner] - rules.margin
    kept, counts = np.ones(len(owner), dtype=bool), {"candidates": len(owner)}
    for name, removed in reasons.items():
        counts[name] = int((kept & removed).sum())
        kept &= ~removed
    return owner[kept], row[kept], counts


def without_answers(groups: Groups, passages: Path, answers: list[list[str]]) -> Groups:
    """The groups without the negatives that hold an answer to their query; ``answers[row]`` are those of a query."""
    owners = np.repeat(np.arange(len(groups)), groups.negatives.lengths)
    removed = answering(passages, groups.negatives.values, groups.queries[owners], answers)
    negatives = ragged(owners[~removed], groups.negatives.values[~removed], len(groups))
    return _replaced(groups, negatives, {"removed_answer": int(removed.sum())})


def _replaced(groups: Groups, negatives: Ragged, counts: dict[str, int]) -> Groups:
    """The groups with other negatives, and what is told of them."""
    told = groups.counts | counts | {"negatives": len(negatives.values)}
    return replace(groups, negatives=negatives, counts=told)


def with_teacher(groups: Groups, run: Path | str, queries: Asked, ids: pa.Array) -> Groups:
    """The groups with a teacher's scores; negatives that the teacher did not score are removed and counted.

    Raises:
        Refusal: the teacher scored none of a query's positives.
    """
    known = _known(run, groups, queries, ids)
    positive, negative = known.of_rows(groups.positives), known.of_rows(groups.negatives)
    learnt = np.add.reduceat(~np.isnan(positive), groups.positives.offsets[:-1], dtype=np.int64)
    if not learnt.all():
        query = queries.ids[groups.queries[np.argmin(learnt)]]
        raise Refusal(f"{run}: no score for query {query} and any of its positives; rescore with --positives")
    scored = ~np.isnan(negative)
    owners = np.repeat(np.arange(len(groups)), groups.negatives.lengths)[scored]
    negatives = ragged(owners, groups.negatives.values[scored], len(groups))
    counts = {"removed_unscored": int((~scored).sum()), "unscored_positives": int(np.isnan(positive).sum())}
    groups = _replaced(groups, negatives, counts)
    return replace(groups, teacher=(positive, negative[scored]))


def with_prior(groups: Groups, run: Path | str, queries: Asked, ids: pa.Array) -> Groups:
    """The groups with the run's own scores where a teacher's would be; its lowest for a passage that it lacks."""
    known = _known(run, groups, queries, ids)
    return replace(groups, teacher=(known.or_lowest(groups.positives), known.or_lowest(groups.negatives)))


def is_positive(groups: Groups, owner: np.ndarray, row: np.ndarray, by_text: bool = False) -> np.ndarray:
    """[n] bool: whether passage ``row`` is a positive of group ``owner``, by id or by normalised text."""
    positives = groups.positives
    of = np.repeat(np.arange(len(groups)), positives.lengths)
    names = np.unique(groups.same, return_inverse=True)[1] if by_text else np.arange(len(groups.same))
    known = of * len(groups.same) + names[positives.values]
    found: np.ndarray = np.isin(owner * len(groups.same) + names[row], known)
    return found


def _known(run: Path | str, groups: Groups, queries: Asked, ids: pa.Array) -> Known:
    """All scores of a run for our groups."""
    owner, row, _, score = _candidates(run, groups, queries, ids, None)
    return Known.of(owner, row, score, len(groups), len(ids))


def _candidates(
    run: Path | str, groups: Groups, queries: Asked, ids: pa.Array, last: int | None
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Groups, passage rows, ranks and scores of a run's rows for our groups up to a rank, by group and rank."""
    group_of = np.full(len(queries), -1, dtype=np.int64)
    group_of[groups.queries] = np.arange(len(groups))
    parts, start = [], 0
    for batch in Run.stream(run):
        rank = batch.column("rank").to_numpy()
        query = rows_in(batch.column("query_id"), queries.ids)
        owner = np.where(query >= 0, group_of[query], -1)
        kept = np.flatnonzero((owner >= 0) & (rank <= (last or rank.max(initial=0))))
        row = known_rows(batch.column("passage_id"), kept, ids, run, start)
        parts.append((owner[kept], row, rank[kept], batch.column("score").to_numpy()[kept]))
        start += batch.num_rows
    owner, row, rank, score = (joined([part[i] for part in parts]) for i in range(4))
    order = np.lexsort((rank, owner))
    return owner[order], row[order], rank[order], score[order]
