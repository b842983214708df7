"""Recipe + tokens + weights → encoder: bottlenecked pre-training."""

import copy
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import torch
import typer
from torch import Tensor

from stages.artifacts.checkpoints import (
    Pooling,
    TextEncoder,
    Vocabulary,
    load_encoder,
    load_heads,
    load_tokenizer,
    load_vocabulary,
    save_encoder,
)
from stages.artifacts.documents import write_json
from stages.artifacts.files import remove
from stages.artifacts.judgements import passage_ids
from stages.artifacts.refusal import Refusal
from stages.artifacts.scratch import scratch
from stages.bottleneck.autoencoder import Autoencoder
from stages.bottleneck.batches import Batches
from stages.bottleneck.generator import prepared
from stages.bottleneck.recipe import Recipe, load_recipe
from stages.bottleneck.tables import needed
from stages.bottleneck.texts import read_corpus
from stages.embedding.probe import Probe, dev_sample
from stages.training.curves import Curves
from stages.training.loop import Plan, Report, train
from stages.training.precision import Precision, resolved
from stages.training.processes import Processes, join


def pretrain(
    recipe: Annotated[Path, typer.Argument(help="Recipe: what is masked, and what is rebuilt from the vector.")],
    passages: Annotated[Path, typer.Argument(help="Passages table: tells which passages are neighbours.")],
    tokens: Annotated[Path, typer.Argument(help="Tokens table of the passages.")],
    start: Annotated[Path, typer.Argument(help="Model folder to start from, with its heads where it has some.")],
    out: Annotated[Path, typer.Argument(help="Model folder to write; the heads lie beside the clean encoder.")],
    metrics: Annotated[Path, typer.Option(help="JSON file to write.")],
    curves: Annotated[Path | None, typer.Option(help="Folder of training curves to write.")] = None,
    keywords: Annotated[Path | None, typer.Option(help="Weights table: TF-IDF.")] = None,
    salience: Annotated[Path | None, typer.Option(help="Weights table: mutual information.")] = None,
    doc2query: Annotated[Path | None, typer.Option(help="Tokens table of generated queries.")] = None,
    continuations: Annotated[Path | None, typer.Option(help="Tokens table of generated continuations.")] = None,
    queries: Annotated[Path | None, typer.Option(help="Queries table, for the probe.")] = None,
    qrels: Annotated[Path | None, typer.Option(help="Qrels table, for the probe.")] = None,
    pooling: Annotated[Literal["cls", "mean"], typer.Option(help="What the bottleneck's vector is.")] = "cls",
    steps: Annotated[int, typer.Option(min=1, help="Optimiser steps.")] = 100,
    batch: Annotated[int, typer.Option(min=1, help="Passages per step, over all processes.")] = 32,
    pieces: Annotated[int, typer.Option(min=16, help="Padded pieces in one forward pass of the encoder.")] = 8192,
    longest: Annotated[int, typer.Option(min=8, help="Pieces of a text, special ones included.")] = 128,
    learning_rate: Annotated[float, typer.Option(min=0.0, help="Peak learning rate.")] = 1e-4,
    warmup: Annotated[float, typer.Option(min=0.0, max=1.0, help="Share of the steps that warm up.")] = 0.1,
    new_parts: Annotated[int, typer.Option(min=0, help="First steps that train only what the start lacks.")] = 0,
    weight_decay: Annotated[float, typer.Option(min=0.0, help="AdamW's weight decay.")] = 0.01,
    clip: Annotated[float, typer.Option(min=0.0, help="Largest norm of the gradient.")] = 1.0,
    dropout: Annotated[float, typer.Option(min=0.0, max=0.9, help="Dropout probability.")] = 0.0,
    probe: Annotated[int, typer.Option(min=0, help="Steps between retrieval probes; 0: none.")] = 0,
    probe_passages: Annotated[int, typer.Option(min=2, help="Passages that a probe ranks.")] = 500,
    seed: Annotated[int, typer.Option(min=0, help="Seed of everything random.")] = 0,
    precision: Precision = "auto",
    checkpoint: Annotated[float, typer.Option(min=0.0, help="Seconds between resumable states.")] = 60.0,
) -> None:
    """Pre-train an encoder by rebuilding views of texts from its vector. An empty recipe passes it through."""
    precision = resolved(precision)
    settings = {name: value for name, value in locals().items() if not isinstance(value, Path)}
    beside = {"keywords": keywords, "salience": salience, "queries": doc2query, "continuations": continuations}
    chosen = load_recipe(recipe)
    begun, processes = begin(chosen, start, dropout, pooling), join()
    if not chosen.encoder:
        if processes.first:
            save_encoder(begun.encoder, start, out, begun.heads)
            write_json(metrics, {"steps": 0})
            Curves(curves).close()  # DVC wants every output that its stage names
        return
    given = needed(chosen, beside, recipe)
    corpus = read_corpus(passages, tokens, given)
    batches = Batches(chosen, corpus, begun.vocabulary, longest, batch, pieces, seed, processes)
    plan = Plan(
        steps,
        learning_rate,
        round(warmup * steps),
        new_parts,
        weight_decay,
        clip,
        seed,
        precision,
        probe_every=probe,
        checkpoint=checkpoint,
    )
    looks = None
    if probe and queries and qrels:
        judged = queries, qrels, passage_ids(tokens), load_tokenizer(start)
        sample = dev_sample(*judged, probe_passages // 2, probe_passages - probe_passages // 2, seed)
        limits = longest, longest, precision
        looks = Probe(begun.encoder, sample, corpus.passages.pieces, begun.vocabulary, *limits, "probe/", cosine=True)
    state = scratch("pretrain", settings, [recipe, passages, tokens, start, *given.values()])
    model = assembled(chosen, begun, batches, plan, processes, state)
    shown = Curves(curves if processes.first else None)
    report = train(model, batches, plan, processes, state, shown, looks, "pretrain")
    if processes.first:
        save_encoder(begun.encoder, start, out, model.heads())
        write_json(metrics, told(report, batches, plan))
        remove(state)


@dataclass(frozen=True)
class Start:
    """What pre-training starts from.

    Attributes:
        heads: what a former pre-training, or the backbone's own, left beside the encoder.
        teacher: the encoder as it was, where the recipe recovers its vectors.
    """

    encoder: TextEncoder
    heads: dict[str, Tensor]
    vocabulary: Vocabulary
    teacher: TextEncoder | None


def begin(recipe: Recipe, folder: Path, dropout: float, pooling: Pooling) -> Start:
    """Read the model folder to start from.

    Raises:
        Refusal: it is no model folder, or of an architecture that decoders are not built for.
    """
    encoder = load_encoder(folder, dropout)
    kind = encoder.config.model_type
    if recipe.encoder and kind != "bert":
        raise Refusal(f"{folder}/config.json: model_type {kind!r}: pre-training knows the architecture 'bert' only")
    teacher = copy.deepcopy(encoder).eval() if recipe.taught else None  # before it is told how to pool
    encoder.pooling = pooling
    return Start(encoder, load_heads(folder), load_vocabulary(folder), teacher)


def assembled(
    recipe: Recipe, begun: Start, batches: Batches, plan: Plan, processes: Processes, state: Path
) -> Autoencoder:
    """The recipe's model, its generator ready to be sampled from.

    Args:
        state: the run's folder, where a generator that must be trained first is kept.
    """
    counts = torch.from_numpy(batches.collate.corpus.counts(begun.vocabulary.size))
    generator = prepared(recipe, begun.encoder, counts, batches, plan, processes, state)
    teacher = begun.teacher and begun.teacher.to(processes.device)
    torch.manual_seed(plan.seed)  # the new parts' parameters, whether or not a generator was made before
    return Autoencoder(recipe, begun.encoder, begun.heads, teacher, counts, generator, processes)


def told(report: Report, batches: Batches, plan: Plan) -> dict[str, Any]:
    """What a run tells: last losses and accuracies, the probe, how much was read, how fast."""
    last = {name: value for name, value in report.history[-1].items() if name != "step"}
    return {
        "steps": plan.steps,
        "passages": plan.steps * batches.buckets.batch,
        "precision": report.precision,
        "last": nested(last),
        "speed": report.speed | {"padding": batches.padding},
    }


def nested(values: dict[str, float]) -> dict[str, Any]:
    """``{"keywords/loss": 3.1}`` → ``{"keywords": {"loss": 3.1}}``, as metrics are read."""
    out: dict[str, Any] = {}
    for name, value in values.items():
        *path, leaf = name.split("/")
        place = out
        for key in path:
            place = place.setdefault(key, {})
        place[leaf] = value
    return out
