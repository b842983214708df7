"""From a trial on a sample to the whole: how each chapter's time, memory and disk grow with the collection."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from stages.surveying.pipeline import Step
from stages.surveying.sample import Sizes
from stages.surveying.trial import BATCH, Seen

STATES = 4  # of each parameter in training: itself, its gradient, AdamW's two
FLOPS = 4e10  # float32 operations a second of one core in a matrix product: the products of an exact search
KEPT = 3  # sets of vectors that ranking keeps for other commands
CAPS = {"pretrain": "pieces", "retriever": "chunk", "reranker": "budget"}  # what bounds a micro-batch


@dataclass(frozen=True)
class Estimate:
    """What a stage will take.

    Attributes:
        seconds: wall clock.
        memory: bytes held at most.
        disk: bytes written to its outputs.
        negatives: passages that a query is told apart from in a step; 0 where nothing is contrasted.
        hard: those among them that a run has proposed for it.
    """

    seconds: float
    memory: float
    disk: float
    negatives: int = 0
    hard: int = 0


@dataclass
class Scales:
    """Everything that an estimate grows with.

    Attributes:
        start: seconds that a program with a model takes to start.
        base: bytes of such a program before it works.
        weights: bytes of the backbone.
        width: dimensions of a vector.
        pieces: pieces of a passage and of a query, on average, special ones included.
        rows: run → (rows on the sample, rows of the whole), filled in as the stages go by.
    """

    whole: Sizes
    sample: Sizes
    start: float
    base: float
    weights: float
    width: int
    pieces: tuple[float, float]
    cores: int
    rows: dict[str, tuple[int, int]] = field(default_factory=dict)

    @property
    def passages(self) -> float:
        """How many times the sample's passages the collection has."""
        return self.whole.passages / self.sample.passages


def estimate(step: Step, seen: Seen, scales: Scales) -> Estimate:
    """What a stage will take, given what it took on the sample."""
    return CHAPTERS.get(step.chapter, _passage_by_passage)(step, seen, scales)


def optimiser_steps(options: Any, queries: int) -> int:
    """Steps of a training: as given, or as the epochs make them."""
    if options["steps"] is not None:
        return int(options["steps"])
    used = max(1, round(float(options.get("fraction", 1.0)) * queries))
    return max(1, math.ceil(float(options["epochs"]) * used / int(options["batch"])))


def _passage_by_passage(step: Step, seen: Seen, scales: Scales) -> Estimate:
    written = sum(seen.written.values()) * scales.passages
    return Estimate(scales.start / 2 + seen.start * scales.passages, scales.base / 2 + seen.memory, written)


def _generated(step: Step, seen: Seen, scales: Scales) -> Estimate:
    speed = seen.metrics["speed"]["texts"]
    texts = seen.metrics["texts"]
    learning = 0.0 if step.options["checkpoint"] else step.options["steps"] * seen.step
    seconds = scales.start + max(seen.start - texts / speed, 0) + learning + texts * scales.passages / speed
    return Estimate(seconds, scales.base + seen.memory, sum(seen.written.values()) * scales.passages)


def _trained(step: Step, seen: Seen, scales: Scales) -> Estimate:
    options = step.options
    larger = options["batch"] / min(options["batch"], BATCH)
    steps = optimiser_steps(options, scales.whole.queries["train"])
    group = options.get("group", 1) if options.get("negatives") or step.chapter != "retriever" else 1
    cap = options[CAPS[step.chapter]]
    tried = min(options["batch"], BATCH) * group * options["longest"]
    wider = min(larger, max(cap / tried, 1.0)) if cap else larger
    states = STATES * scales.weights
    memory = scales.base + states + max(seen.memory - states, 0) * wider
    negatives = {"retriever": options["batch"] * group - 1, "reranker": group - 1}.get(step.chapter, 0)
    seconds = scales.start + seen.start + steps * seen.step * larger
    return Estimate(seconds, memory, sum(seen.written.values()), negatives, group - 1 if negatives else 0)


def _searched(step: Step, seen: Seen, scales: Scales) -> Estimate:
    """BM25's index and search."""
    ratio = _ranked(step, scales)
    larger = (scales.whole.passages + scales.whole.asked(step.options["splits"])) / (
        scales.sample.passages + scales.sample.asked(step.options["splits"])
    )
    written = sum(seen.written.values()) * ratio
    return Estimate(scales.start / 2 + seen.start * larger, scales.base / 2 + 2e9, written)  # Lucene's heap is 2 GB


def _mined(step: Step, seen: Seen, scales: Scales) -> Estimate:
    ratio, speed = _ranked(step, scales), seen.metrics["speed"]
    queries, passages = scales.whole.asked(step.options["splits"]), scales.whole.passages
    encoding = passages * scales.pieces[0] / speed["passage_tokens_per_second"]
    encoding += queries * scales.pieces[1] / speed["query_tokens_per_second"]
    products = 2.0 * queries * passages * scales.width / (FLOPS * scales.cores)
    vectors = passages * scales.width * 4
    held = scales.base + seen.memory + min(vectors, 65_536 * 4 * scales.width) + 8_192 * step.options["depth"] * 40
    written = sum(seen.written.values()) * ratio
    return Estimate(scales.start + encoding + products + seen.start * ratio, held, written + vectors * KEPT / 5)


def _rescored(step: Step, seen: Seen, scales: Scales) -> Estimate:
    options = step.options
    ratio = _ranked(step, scales)
    seconds = scales.start + _pairs(options, scales.whole) / seen.metrics["speed"]["pairs_per_second"]
    return Estimate(seconds, scales.base + seen.memory, sum(seen.written.values()) * ratio)


def _ranked(step: Step, scales: Scales) -> float:
    """Note how many rows the run that a stage writes will have; how many times the sample's these are."""
    both = scales.sample, scales.whole
    if step.options.get("keep_rest"):
        source = scales.rows[str(step.options["run"])]
        per_query = [n / max(sizes.asked(None), 1) for n, sizes in zip(source, both, strict=True)]
        rows = [round(n * sizes.asked(step.options["splits"])) for n, sizes in zip(per_query, both, strict=True)]
    else:
        rows = [_pairs(step.options, sizes) for sizes in both]
    scales.rows[str(step.options["out"])] = rows[0], rows[1]
    return rows[1] / max(rows[0], 1)


def _pairs(options: Mapping[str, Any], sizes: Sizes) -> int:
    """Pairs of a query and a passage that a stage ranks, at most: to the depth, and positives beyond it."""
    asked, positives = sizes.asked(options["splits"]), sizes.judged(options["splits"])
    depth, added = int(options["depth"]), int(options.get("positives", 0))
    return min(asked * depth + min(asked * added, positives), asked * sizes.passages)


def _evaluated(step: Step, seen: Seen, scales: Scales) -> Estimate:
    known = scales.rows.get(str(step.options["run"]), (1, 1))
    ratio = known[1] / max(known[0], 1)
    return Estimate(
        scales.start / 2 + seen.start * ratio, scales.base / 2 + seen.memory, sum(seen.written.values()) * ratio
    )


def _once(step: Step, seen: Seen, scales: Scales) -> Estimate:
    return Estimate(scales.start / 2 + seen.start, scales.base / 2 + seen.memory, sum(seen.written.values()))


CHAPTERS: dict[str, Callable[[Step, Seen, Scales], Estimate]] = {
    "backbone": _once,
    "doc2query": _generated,
    "continuations": _generated,
    "pretrain": _trained,
    "bm25": _searched,
    "retriever": _trained,
    "mine": _mined,
    "reranker": _trained,
    "rescore": _rescored,
    "evaluate": _evaluated,
    "compare": _once,
}
