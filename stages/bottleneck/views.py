"""Collation: rows of the corpus → masked views as tensors. No loop over pieces, and over texts only for row masks.

All noise is drawn for the whole global batch and then cut, so that the masks of a passage depend neither on how
many processes share the batch nor on how it is cut into micro-batches.
"""

import zlib
from dataclasses import dataclass, field, replace

import numpy as np
import torch
from torch import Tensor

from stages.artifacts.checkpoints import Vocabulary
from stages.bottleneck.decoders import NETWORKS
from stages.bottleneck.fills import FILLS
from stages.bottleneck.masks import Words, draw
from stages.bottleneck.recipe import Decoder, Recipe, View
from stages.bottleneck.texts import TEXTS, Corpus, Stretch
from stages.bottleneck.visibility import SPECIALS, Text, visibility


@dataclass
class ViewBatch:
    """One view of a micro-batch; b of its B passages have such a text.

    Attributes:
        rows: [b] which passages of the micro-batch.
        ids: [b, L] what is read; clean: [b, L] what it was.
        lengths: [b] pieces, specials included.
        hidden: [b, L] bool, where something else than the text may be read.
        places: [n] flat positions in [b, L] to predict; labels: [n] the pieces there.
        documents: [b] equal where two texts are of one document.
        visible: [b, L, L] bool, what each row may look at, for networks that ask.
        noise: [b, L] uniform, where a generator's samples are drawn with it.
    """

    rows: Tensor
    ids: Tensor
    clean: Tensor
    lengths: Tensor
    hidden: Tensor
    places: Tensor
    labels: Tensor
    documents: Tensor = field(default_factory=lambda: torch.empty(0, dtype=torch.int32))
    visible: Tensor | None = None
    noise: Tensor | None = None

    def to(self, device: torch.device) -> "ViewBatch":
        """The same view on another device."""
        parts = {name: getattr(self, name) for name in self.__dataclass_fields__}
        there = {name: part.to(device, non_blocking=True) for name, part in parts.items() if part is not None}
        return ViewBatch(**there)


@dataclass
class MicroBatch:
    """The views of some passages by name, and what each adds to the global counts."""

    views: dict[str, ViewBatch]
    counts: dict[str, int]

    def to(self, device: torch.device) -> "MicroBatch":
        """The same views on another device."""
        return MicroBatch({name: view.to(device) for name, view in self.views.items()}, self.counts)


@dataclass(frozen=True)
class Draws:
    """Noise for the passages ``mine`` of a global batch of ``batch``, a function of seed, step and name alone."""

    seed: int
    step: int
    batch: int
    mine: np.ndarray

    def make(self, name: str, kind: str, width: int, longest: int) -> np.ndarray:
        """[len(mine), width] float32, uniform in [0, 1) or standard normal."""
        generator = np.random.Generator(np.random.SFC64([self.seed, self.step, zlib.crc32(name.encode())]))
        shape = (self.batch, longest)
        if kind == "normal":
            return generator.standard_normal(shape, dtype=np.float32)[self.mine, :width]
        return generator.random(shape, dtype=np.float32)[self.mine, :width]

    def generator(self, name: str, passage: int) -> np.random.Generator:
        """One for the ``passage``-th of these passages alone, where noise for the whole batch would be too much."""
        seed = [self.seed, self.step, zlib.crc32(name.encode()), int(self.mine[passage])]
        return np.random.Generator(np.random.SFC64(seed))


class Collator:
    """Makes micro-batches of a recipe's views.

    Args:
        longest: pieces of a text that are looked at, specials included.
    """

    def __init__(self, recipe: Recipe, corpus: Corpus, vocabulary: Vocabulary, longest: int):
        self.recipe, self.corpus, self.vocabulary = recipe, corpus, vocabulary
        self.longest = longest - SPECIALS
        self.special = np.zeros(vocabulary.size, dtype=bool)
        self.special[list(vocabulary.special)] = True

    def __call__(self, rows: np.ndarray, draws: Draws) -> MicroBatch:
        """The views of the passages ``rows``, which are ``draws.mine`` of the global batch."""
        views: dict[str, ViewBatch] = {}
        masked: dict[str, np.ndarray] = {}
        for name, view in self.recipe.views().items():
            read = f"encoder/{view.reads}" if isinstance(view, Decoder) else None
            stretch = self.stretch(view, rows, draws)
            if read:
                stretch = stretch.only(np.isin(np.arange(len(rows)), views[read].rows.numpy()))
            views[name], masked[name] = self.view(name, view, stretch, draws, masked[read] if read else None)
            views[name].documents = torch.from_numpy(self.corpus.documents[rows[views[name].rows.numpy()]])
        counts = {name: len(view.labels) for name, view in views.items()}
        counts |= {f"{name}/texts": len(view.rows) for name, view in views.items()}
        counts |= {f"{name}/replaced": int(view.hidden.sum()) for name, view in views.items() if view.noise is not None}
        counts["tokens"] = sum(int(views[f"encoder/{name}"].lengths.sum()) for name in self.recipe.encoder)
        return MicroBatch(views, counts)

    def stretch(self, view: View, rows: np.ndarray, draws: Draws) -> Stretch:
        """Where the view's text lies; views of a step share the noise, so that two halves are of one window."""
        return TEXTS[view.text](self.corpus, rows, self.longest, draws.make("place", "uniform", 1, 1)[:, 0])

    def view(
        self, name: str, view: View, stretch: Stretch, draws: Draws, read: np.ndarray | None
    ) -> tuple[ViewBatch, np.ndarray]:
        """One view, and which words [B, W] it hides; ``read`` is the latter of the view that it reads."""
        ids, word = self.padded(stretch)
        word, sizes = self.words(view, word)
        weights = self.weights(view, stretch, word, sizes)
        if isinstance(view, Decoder) and NETWORKS[view.network].rows:
            made = self.tensors(view, ids, ids, np.zeros(ids.shape, dtype=bool), stretch.lengths)
            visible = self.visible(name, view, ids, word, stretch.lengths, weights, draws)
            return replace(made, visible=torch.from_numpy(visible)), np.zeros(sizes.shape, dtype=bool)
        words = Words(
            sizes,
            lambda kind: draws.make(f"{name}/{kind}", kind, sizes.shape[1], self.longest),
            weights,
            read,
        )
        drawn = draw(view.mask, words)
        hidden = np.take_along_axis(drawn, np.maximum(word, 0), 1) & (word >= 0) & ~self.special[ids]
        noise = draws.make(f"{name}/fill", "uniform", ids.shape[1], self.longest)
        filled = FILLS[view.fill](ids, hidden, noise, self.vocabulary)
        made = self.tensors(view, ids, filled, hidden, stretch.lengths)
        if view.fill == "generator":
            made.noise = torch.from_numpy(np.pad(noise[made.rows.numpy()], ((0, 0), (1, 1))))
        return made, drawn

    def visible(
        self,
        name: str,
        view: Decoder,
        ids: np.ndarray,
        word: np.ndarray,
        lengths: np.ndarray,
        weights: np.ndarray | None,
        draws: Draws,
    ) -> np.ndarray:
        """[b, L, L] bool of the texts that exist; behind a text's end a row sees the vector alone."""
        rows, texts = np.flatnonzero(lengths > 0), []
        out = np.zeros((len(rows), ids.shape[1] + SPECIALS, ids.shape[1] + SPECIALS), dtype=bool)
        out[:, :, 0] = True
        for row in rows.tolist():
            own, n = draws.generator(f"{name}/rows", row), int(lengths[row])
            weight = None if weights is None else weights[row]
            texts.append(Text(word[row, :n], self.special[ids[row, :n]], weight, own))
        for place, seen in enumerate(visibility(view.mask, texts, view.options.get("rows") == "pool")):
            out[place, : len(seen), : len(seen)] = seen
        return out

    def padded(self, stretch: Stretch) -> tuple[np.ndarray, np.ndarray]:
        """[B, L] ids and [B, L] words counted from 0 in each row, -1 behind its end."""
        width = max(int(stretch.lengths.max(initial=0)), 1)
        columns = np.arange(width)
        real = columns < stretch.lengths[:, None]
        if not real.any():
            return np.full(real.shape, self.vocabulary.pad, dtype=np.int64), np.full(real.shape, -1)
        ends = np.maximum(stretch.lengths, 1)[:, None] - 1  # behind its end a text's last place stands again
        starts = np.minimum(stretch.starts, len(stretch.source.word_of_piece) - 1)[:, None]
        places = starts + np.minimum(columns, ends)
        pieces = np.asarray(stretch.source.pieces.values).take(places)
        ids = np.where(real, pieces, self.vocabulary.pad).astype(np.int64)
        words = stretch.source.words(places)
        return ids, np.where(real, words - words[:, :1], -1)

    def words(self, view: View, word: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """[B, L] the units that the view hides whole, and [B, W] the pieces in each."""
        if view.mask.unit == "word":
            return word, _sizes(word)
        word = np.where(word >= 0, np.arange(word.shape[1]), -1)
        return word, (word >= 0).astype(np.int64)

    def weights(self, view: View, stretch: Stretch, word: np.ndarray, sizes: np.ndarray) -> np.ndarray | None:
        """[B, W] the weights that the view's mask looks at."""
        if not view.mask.by:
            return None
        assert stretch.weighted, f"{view.text} has no word weights"
        own = np.asarray(self.corpus.weights[view.mask.by])
        first = stretch.source.words(np.minimum(stretch.starts, len(stretch.source.word_of_piece) - 1)[:, None])
        return own.take(first + np.arange(sizes.shape[1]), mode="clip")

    def tensors(
        self, view: View, clean: np.ndarray, filled: np.ndarray, hidden: np.ndarray, lengths: np.ndarray
    ) -> ViewBatch:
        """The texts that exist, in [CLS] … [SEP], with what is to be predicted."""
        rows = np.flatnonzero(lengths > 0)
        lengths = lengths[rows]
        clean, filled = (self.framed(ids[rows], lengths) for ids in (clean, filled))
        hidden = np.pad(hidden[rows], ((0, 0), (1, 1)))
        ordinary = ~self.special[clean] & (np.arange(clean.shape[1]) <= lengths[:, None])
        asked = {"hidden": hidden, "all": ordinary, "replaced": ordinary, "none": np.zeros_like(hidden)}
        predicted = asked[view.predict]
        places = np.flatnonzero(predicted)
        labels = clean.reshape(-1)[places]
        arrays = (rows, filled, clean, lengths + SPECIALS, hidden, places, labels)
        return ViewBatch(*map(torch.from_numpy, arrays))

    def framed(self, ids: np.ndarray, lengths: np.ndarray) -> np.ndarray:
        """[b, L] → [b, L + 2] with [CLS] before and [SEP] behind each text."""
        out = np.pad(ids, ((0, 0), (1, 1)), constant_values=self.vocabulary.pad)
        out[:, 0] = self.vocabulary.cls
        out[np.arange(len(ids)), lengths + 1] = self.vocabulary.sep
        return out


def _sizes(word: np.ndarray) -> np.ndarray:
    """[B, W] pieces in each word."""
    width = int(word.max(initial=0)) + 1
    flat = (word + np.arange(len(word))[:, None] * width)[word >= 0]
    return np.bincount(flat, minlength=len(word) * width).reshape(len(word), width)
