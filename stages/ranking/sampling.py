"""Which queries, positives and negatives a step trains on: a function of the seed and the step alone."""

from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal

import numpy as np

from stages.artifacts.refusal import Refusal
from stages.ranking.groups import Groups
from stages.training.loop import Report

Draw = Literal["sample", "rotate"]
SEEN = ("negatives", "masked", "filled")  # what a step shows of a query's group, beside losses
ORDER, POSITIVE, NEGATIVES, SHUFFLE, FILL = range(1, 6)  # independent streams of one seed


@dataclass(frozen=True)
class Drawn:
    """One batch of N groups of n passages.

    Attributes:
        groups: [N] indices into the `Groups`.
        passages: [N, n] passage rows, the positive first.
        teacher: [N, n] float32 scores, NaN where a passage filled a gap; None without a teacher.
        filled: how many random passages filled gaps.
    """

    groups: np.ndarray
    passages: np.ndarray
    teacher: np.ndarray | None
    filled: int


@dataclass(frozen=True)
class Sampler:
    """Draws batches.

    Attributes:
        batch: groups in a batch, over all processes (N).
        size: passages in a group (n): a positive and n − 1 negatives.
        draw: ``sample`` draws negatives anew in every epoch; ``rotate`` walks through one shuffle of them, so
            that every negative is used equally often (SimLM's release).
        fill: whether random passages of the corpus fill up what a query lacks in negatives.
    """

    groups: Groups
    batch: int
    size: int
    seed: int
    draw: Draw = "sample"
    fill: bool = True

    @property
    def lacking(self) -> int:
        """How many queries have fewer than n − 1 negatives."""
        return int((self.groups.negatives.lengths < self.size - 1).sum())

    def refuse(self, run: str, world: int) -> None:
        """Raise `Refusal` where queries lack negatives and nothing may fill the gap, or processes a whole share."""
        if self.batch % world:
            raise Refusal(f"--batch {self.batch}: cannot be shared out among {world} processes")
        if self.lacking and not self.fill:
            query = int(np.argmin(self.groups.negatives.lengths))
            least = int(self.groups.negatives.lengths[query])
            raise Refusal(
                f"{run}: {self.lacking} of {len(self.groups)} training queries have fewer than {self.size - 1} "
                f"negatives (the least: {least}); choose a smaller group, a deeper run, or --fill"
            )
        if self.lacking and self.strangers < self.size - 1:
            raise Refusal(f"--group {self.size}: the corpus has only {self.strangers} passages to fill a group with")

    @property
    def strangers(self) -> int:
        """Passages that read like no positive of a query, for the query that has the fewest."""
        positives = self.groups.positives
        _, names, counts = np.unique(self.groups.same, return_inverse=True, return_counts=True)
        alike = np.add.reduceat(counts[names[positives.values]], positives.offsets[:-1])
        return len(self.groups.same) - int(alike.max())

    def step(self, step: int) -> Drawn:
        """The batch of step 0, 1, …; epochs follow one another without a gap, each in its own order."""
        places = np.arange(step * self.batch, (step + 1) * self.batch)
        epochs, within = np.divmod(places, len(self.groups))
        groups = np.array([self.order(int(e))[w] for e, w in zip(epochs, within, strict=True)])
        drawn = [self._group(int(group), int(epoch)) for group, epoch in zip(groups, epochs, strict=True)]
        teacher = None if self.groups.teacher is None else np.stack([scores for _, scores, _ in drawn])
        return Drawn(groups, np.stack([rows for rows, _, _ in drawn]), teacher, sum(gap for _, _, gap in drawn))

    def order(self, epoch: int) -> np.ndarray:
        """The order of all groups in an epoch."""
        return _order(self.seed, epoch, len(self.groups))

    def _group(self, group: int, epoch: int) -> tuple[np.ndarray, np.ndarray, int]:
        """Passage rows, teacher scores and gaps of one group in one epoch."""
        positives, negatives, wanted = self.groups.positives, self.groups.negatives, self.size - 1
        candidates = np.arange(positives.offsets[group], positives.offsets[group + 1])
        if self.groups.teacher is not None:
            candidates = candidates[~np.isnan(self.groups.teacher[0][candidates])]
        positive = self._rng(POSITIVE, epoch, group).choice(candidates)
        start, stop = negatives.offsets[group], negatives.offsets[group + 1]
        chosen = start + self._choice(int(stop - start), wanted, epoch, group)
        gap = wanted - len(chosen)
        fillers = self._fillers(group, epoch, gap) if gap else np.empty(0, dtype=np.int64)
        rows = np.concatenate([positives.values[[positive]], negatives.values[chosen], fillers])
        scores = np.empty(0, dtype=np.float32)
        if self.groups.teacher is not None:
            of_positives, of_negatives = self.groups.teacher
            scores = np.concatenate([of_positives[[positive]], of_negatives[chosen], np.full(gap, np.nan, np.float32)])
        return rows, scores, gap

    def _choice(self, pool: int, wanted: int, epoch: int, group: int) -> np.ndarray:
        """At most ``wanted`` different places of 0 … pool − 1."""
        count = min(pool, wanted)
        if self.draw == "sample":
            return self._rng(NEGATIVES, epoch, group).permutation(pool)[:count]
        shuffled = self._rng(SHUFFLE, 0, group).permutation(pool)
        return shuffled[(epoch * wanted + np.arange(count)) % max(pool, 1)]

    def _fillers(self, group: int, epoch: int, count: int) -> np.ndarray:
        """Random passages that are no positives of the group, by id or text, and differ from one another."""
        rng, same, groups = self._rng(FILL, epoch, group), self.groups.same, np.array([group])
        barred = set(same[self.groups.positives.take(groups).values].tolist())
        taken = set(self.groups.negatives.take(groups).values.tolist())
        chosen: list[int] = []
        while len(chosen) < count:  # `refuse` has made sure that there are enough
            row = int(rng.integers(len(same)))
            if row not in taken and int(same[row]) not in barred:
                taken.add(row)
                chosen.append(row)
        return np.array(chosen, dtype=np.int64)

    def _rng(self, stream: int, epoch: int, group: int) -> np.random.Generator:
        return np.random.default_rng([self.seed, stream, epoch, group])


@lru_cache(maxsize=4)
def _order(seed: int, epoch: int, groups: int) -> np.ndarray:
    return np.random.default_rng([seed, ORDER, epoch]).permutation(groups)


def told(sampler: Sampler, report: Report) -> dict[str, Any]:
    """What a training run tells: queries, removals, negatives per query, losses, precision, speed."""
    last = {name: value for name, value in report.history[-1].items() if name not in SEEN}
    return {
        "queries": sampler.groups.counts,
        "groups": {
            "passages": sampler.size,
            "queries_that_lack_negatives": sampler.lacking,
            **{name: report.last(name) for name in SEEN if name in report.history[-1]},
        },
        "last": last,
        "precision": report.precision,
        "speed": report.speed,
    }
