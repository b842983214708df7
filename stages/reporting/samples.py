"""Negatives to look at: some training queries with the hardest passages that they learn from."""

from dataclasses import dataclass

import numpy as np

from stages.reporting.audit import RANKERS, TEACHER, Audit, Round


@dataclass(frozen=True)
class Shown:
    """One passage of a sampled query: its ranks by run (0: not ranked), the teacher's score, the pools it is in."""

    passage_id: str
    positive: bool
    ranks: dict[str, int]
    teacher: float | None
    pools: list[str]
    suspect: bool


@dataclass(frozen=True)
class Sample:
    """One training query and some of its passages, positives first."""

    query: str
    shown: list[Shown]

    @property
    def passage_ids(self) -> list[str]:
        """Of all passages shown."""
        return [one.passage_id for one in self.shown]


def sampled(audit: Audit, count: int, negatives: int, seed: int) -> list[Sample]:
    """``count`` queries drawn at random, each with its best positive and its hardest negatives.

    Hardest by the last pool's order: by the teacher where there is one.
    """
    last = audit.rounds[-1]
    able = np.flatnonzero(last.groups.negatives.lengths >= 1)
    drawn = np.sort(np.random.default_rng([seed, 1]).permutation(able)[:count])
    return [_sample(audit, last, int(group), negatives) for group in drawn]


def _sample(audit: Audit, last: Round, group: int, count: int) -> Sample:
    positives, negatives = last.groups.positives.offsets, last.groups.negatives.offsets
    known = audit.positives[positives[group] : positives[group + 1]]
    hard = last.at[negatives[group] : negatives[group + 1]][:count]
    scores = audit.places[TEACHER].score if TEACHER in audit.places else np.full(len(audit.pairs), np.nan)
    known = known[np.argsort(-np.nan_to_num(scores[known], nan=-np.inf), kind="stable")]
    best = scores[known[0]]
    shown = [_shown(audit, int(at), True, False) for at in known[:2]]
    shown += [_shown(audit, int(at), False, bool(scores[at] > best)) for at in hard]
    return Sample(audit.asking.texts[int(last.groups.queries[group])], shown)


def _shown(audit: Audit, at: int, positive: bool, suspect: bool) -> Shown:
    row = int(audit.pairs[at] % len(audit.ids))
    ranks = {run: int(audit.places[run].rank[at]) for run in RANKERS if run in audit.places}
    teacher = float(audit.places[TEACHER].score[at]) if TEACHER in audit.places else float("nan")
    pools = [] if positive else [one.name for one in audit.rounds if at in one.at]
    score = None if np.isnan(teacher) else teacher
    return Shown(audit.ids[row].as_py(), positive, ranks, score, pools, suspect)
