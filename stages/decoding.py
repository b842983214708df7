"""How much a decoder leans on the vector: the similarity of its states to it, position by position."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Annotated, TypeVar

import numpy as np
import torch
import typer
from torch import Tensor

from stages.artifacts.checkpoints import load_encoder, load_heads, load_vocabulary
from stages.artifacts.documents import write_json
from stages.artifacts.names import HEADS
from stages.artifacts.refusal import Refusal
from stages.bottleneck.autoencoder import Autoencoder
from stages.bottleneck.decoders.bidirectional import Bidirectional
from stages.bottleneck.decoders.causal import Causal
from stages.bottleneck.decoders.enhanced import Enhanced
from stages.bottleneck.decoders.reading import Network, Reading
from stages.bottleneck.recipe import Recipe, View, load_recipe
from stages.bottleneck.tables import needed
from stages.bottleneck.texts import read_corpus
from stages.bottleneck.views import Collator, Draws, MicroBatch, ViewBatch
from stages.embedding.positions import Likeness, by_position
from stages.embedding.samples import of_length
from stages.training.precision import Precision, autocast, resolved
from stages.training.processes import join
from stages.training.progress import Progress

WITH_STATES = ("bidirectional", "enhanced", "causal", "skip")  # networks that have a state for every position
BATCH = 32  # passages read together
V = TypeVar("V", bound=View)


@torch.inference_mode()
def decoders(
    recipe: Annotated[Path, typer.Argument(help="Recipe that the model was pre-trained with.")],
    passages: Annotated[Path, typer.Argument(help="Passages table.")],
    tokens: Annotated[Path, typer.Argument(help="Tokens table of the passages.")],
    model: Annotated[Path, typer.Argument(help="Model folder that pretrain wrote, with its heads.")],
    out: Annotated[Path, typer.Option(help="JSON rows for dvc plots: a row a position, a column a decoder.")],
    keywords: Annotated[Path | None, typer.Option(help="Weights table: TF-IDF.")] = None,
    salience: Annotated[Path | None, typer.Option(help="Weights table: mutual information.")] = None,
    doc2query: Annotated[Path | None, typer.Option(help="Tokens table of generated queries.")] = None,
    continuations: Annotated[Path | None, typer.Option(help="Tokens table of generated continuations.")] = None,
    longest: Annotated[
        int, typer.Option(min=8, help="Pieces of a passage, special ones included; shorter ones are left out.")
    ] = 128,
    sample: Annotated[int, typer.Option(min=1, help="Passages, at most.")] = 500,
    precision: Precision = "auto",
    seed: Annotated[int, typer.Option(min=0, help="Seed of sample and masks.")] = 0,
) -> None:
    """The mean cosine between a decoder's last states and the vector that it reads, by position (SEED, Figure 4).

    The vector is the encoder's [CLS], or the mean state where the model pools so. Texts are masked as in
    pre-training; what a generator would fill is read as it stands. Position 0 is the decoder's own first state. A
    decoder of another text than the passage has a mean over those texts that are so long, and no value beyond.
    """
    precision = resolved(precision)
    chosen = legible(load_recipe(recipe), recipe)
    beside = {"keywords": keywords, "salience": salience, "queries": doc2query, "continuations": continuations}
    corpus = read_corpus(passages, tokens, needed(chosen, beside, recipe))
    rows = of_length(corpus.passages.pieces, longest, sample, seed)
    if not len(rows):
        raise Refusal(f"{tokens}: no passage of {longest} pieces")
    device = join().device
    rebuilt, collate = rebuild(chosen, model).to(device), Collator(chosen, corpus, load_vocabulary(model), longest)
    columns = {name: Likeness(longest) for name in chosen.decoders}
    with Progress("decoders", len(rows), "passages") as bar:
        for step, start in enumerate(range(0, len(rows), BATCH)):
            part = rows[start : start + BATCH]
            batch = collate(part, Draws(seed, step, len(part), np.arange(len(part)))).to(device)
            with autocast(device, precision):
                for name, found in states_and_vectors(rebuilt, batch):
                    columns[name].add(*found)
            bar.advance(len(part))
    write_json(out, by_position(longest, columns))


def legible(recipe: Recipe, path: Path) -> Recipe:
    """The decoders that have states, the views that they read, and nothing to predict: so without a generator.

    Raises:
        Refusal: there is no such decoder.
    """
    kept = {name: spec for name, spec in recipe.decoders.items() if spec.network in WITH_STATES}
    if not kept:
        raise Refusal(f"{path}: no decoder has states by position: none is {', '.join(WITH_STATES)}")
    read = {spec.reads for spec in kept.values()}
    encoder = {name: _unfilled(view) for name, view in recipe.encoder.items() if name in read}
    return Recipe(encoder, {name: _unfilled(replace(spec, beside="")) for name, spec in kept.items()})


def _unfilled(view: V) -> V:
    return replace(view, predict="none", fill="keep" if view.fill == "generator" else view.fill)


def rebuild(recipe: Recipe, folder: Path) -> Autoencoder:
    """The encoder and the decoders of a model folder.

    Raises:
        Refusal: the folder does not hold these decoders.
    """
    model = Autoencoder(recipe, load_encoder(folder), load_heads(folder))
    lacking = sorted(name for name in model.new if name.startswith("decoders."))
    if lacking:
        raise Refusal(f"{folder / HEADS}: {lacking[0]} is missing: the model was not pre-trained with this recipe")
    return model.eval()


def states_and_vectors(model: Autoencoder, batch: MicroBatch) -> Iterator[tuple[str, tuple[Tensor, Tensor, Tensor]]]:
    """Yield every decoder's name, and its [b, L, d] states, the [b, d] vectors beside them, and [b] lengths."""
    readings = {name: model.read(batch.views[f"encoder/{name}"]) for name in model.recipe.encoder}
    for name, spec in model.recipe.decoders.items():
        target = batch.views[name]
        if len(target.rows):
            reading = model.part(spec, readings, batch.views, target)
            states, lengths = states_of(model.network(name), reading, target)
            yield name, (states, reading.vector, lengths)


def states_of(network: Network, reading: Reading, target: ViewBatch) -> tuple[Tensor, Tensor]:
    """[b, L, d] last states of a decoder and [b] how many of each text; an autoregressive one does not read [SEP]."""
    if isinstance(network, Causal):
        return network.states(reading.vector, target.clean[:, :-1]), target.lengths - 1
    assert isinstance(network, Bidirectional | Enhanced)
    return network.states(reading, target), target.lengths
