"""The micro-batches of a step, for one of several processes."""

import numpy as np

from stages.artifacts.checkpoints import Vocabulary
from stages.bottleneck.recipe import Recipe
from stages.bottleneck.texts import Corpus
from stages.bottleneck.views import SPECIALS, Collator, Draws, MicroBatch
from stages.training.buckets import Buckets, cut
from stages.training.processes import Processes

SHORTEST = 2  # pieces: one to read, one to hide


class Batches:
    """Step → micro-batches, a pure function of the seed.

    Args:
        batch: passages per step over all processes.
        pieces: padded pieces of the passages in one micro-batch.
    """

    def __init__(
        self,
        recipe: Recipe,
        corpus: Corpus,
        vocabulary: Vocabulary,
        longest: int,
        batch: int,
        pieces: int,
        seed: int,
        processes: Processes,
    ):
        self.collate = Collator(recipe, corpus, vocabulary, longest)
        self.batch = batch
        self.buckets = Buckets(np.minimum(corpus.passages.pieces.lengths, longest), batch, seed, SHORTEST)
        self.longest, self.pieces, self.seed, self.processes = longest, pieces, seed, processes
        self.seen = np.zeros(2, dtype=np.int64)  # real and padded pieces of the encoder's views

    def of(self, recipe: Recipe) -> "Batches":
        """The same passages in the same order, as another recipe looks at them."""
        seen = self.collate.corpus, self.collate.vocabulary, self.longest, self.batch
        return Batches(recipe, *seen, self.pieces, self.seed, self.processes)

    def __call__(self, step: int) -> list[MicroBatch]:
        """Every ``world``-th passage of the step's batch, cut into micro-batches.

        Every process cuts at the same places, so that losses across processes find all of them at the same one.
        """
        rows = self.buckets(step)
        mine = np.arange(self.processes.rank, len(rows), self.processes.world)
        last = np.minimum(np.arange(1, -(-len(rows) // self.processes.world) + 1) * self.processes.world, len(rows))
        lengths = (
            self.buckets.lengths[rows[last - 1]] + SPECIALS
        )  # the longest of all processes, as rows rise in length
        parts = []
        for run in cut(lengths, self.pieces):
            parts.append(self.collate(rows[mine[run]], Draws(self.seed, step, len(rows), mine[run])))
            for name in self.collate.recipe.encoder:
                view = parts[-1].views[f"encoder/{name}"]
                self.seen += [int(view.lengths.sum()), view.ids.numel()]
        return parts

    @property
    def padding(self) -> float:
        """The share of padding among the pieces that the encoder has read."""
        return float(1 - self.seen[0] / max(self.seen[1], 1))
