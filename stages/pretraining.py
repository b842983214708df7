"""Recipe + tokens + weights → encoder: bottlenecked pre-training."""

from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import torch
import typer
from safetensors.torch import load_file, save_file

from stages.artifacts.checkpoints import (
    TextEncoder,
    load_encoder,
    load_heads,
    load_tokenizer,
    load_vocabulary,
    save_encoder,
)
from stages.artifacts.documents import write_json
from stages.artifacts.files import remove, whole
from stages.artifacts.ragged import Ragged
from stages.artifacts.refusal import Refusal
from stages.artifacts.scratch import scratch
from stages.artifacts.tables import Qrels, Queries, Tokens
from stages.bottleneck.autoencoder import Autoencoder
from stages.bottleneck.batches import Batches
from stages.bottleneck.generator import Generator, loaded, made
from stages.bottleneck.masks import Mask
from stages.bottleneck.probe import Probe
from stages.bottleneck.recipe import Recipe, View, load_recipe
from stages.bottleneck.texts import GENERATED, Corpus, read_corpus
from stages.training.curves import Curves
from stages.training.loop import Plan, Report, train
from stages.training.processes import Processes, join

WEIGHTS = ("keywords", "salience")


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
    precision: Annotated[Literal["bf16", "fp32"], typer.Option(help="Precision of matrix products.")] = "bf16",
    checkpoint: Annotated[float, typer.Option(min=0.0, help="Seconds between resumable states.")] = 60.0,
) -> None:
    """Pre-train an encoder by rebuilding views of texts from its vector. An empty recipe passes it through."""
    settings = {name: value for name, value in locals().items() if not isinstance(value, Path)}
    beside = {"keywords": keywords, "salience": salience, "queries": doc2query, "continuations": continuations}
    plan_of = load_recipe(recipe)
    encoder = load_encoder(start, dropout)
    encoder.pooling = pooling
    if not plan_of.encoder:
        save_encoder(encoder, start, out, load_heads(start))
        write_json(metrics, {"steps": 0})
        return
    given = needed(plan_of, beside, recipe)
    _refuse_other_models(encoder, start)
    processes, vocabulary = join(), load_vocabulary(start)
    corpus = read_corpus(
        passages,
        tokens,
        {name: path for name, path in given.items() if name in WEIGHTS},
        {name: path for name, path in given.items() if name in GENERATED},
    )
    batches = Batches(plan_of, corpus, vocabulary, longest, batch, pieces, seed, processes)
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
    teacher = load_encoder(start) if any(spec.network == "vector" for spec in plan_of.decoders.values()) else None
    occurring = torch.from_numpy(corpus.occurring(vocabulary.size))
    teacher = teacher and teacher.to(processes.device).eval()
    used = [recipe, passages, tokens, start, *given.values()]
    state = scratch("pretrain", settings, used)
    generator = the_generator(plan_of, encoder, batches, plan, processes, state)
    torch.manual_seed(seed)  # the new parts' parameters, whether or not a generator was made before
    model = Autoencoder(plan_of, encoder, load_heads(start), teacher, occurring, generator, processes)
    asked = queries and qrels and probe
    looks = dev_probe(queries, qrels, tokens, start, corpus, longest, precision, probe_passages) if asked else None  # type: ignore[arg-type]
    report = train(
        model,
        batches,
        plan,
        processes,
        state,
        Curves(curves if processes.first else None),
        (lambda step: looks(encoder, processes)) if looks else None,
        "pretrain",
    )
    if processes.first:
        save_encoder(encoder, start, out, model.heads())
        write_json(metrics, told(report, batches, plan))
        remove(state)


def needed(recipe: Recipe, beside: dict[str, Path | None], path: Path) -> dict[str, Path]:
    """The tables beside the tokens that the recipe looks at.

    Raises:
        Refusal: one of them was not given.
    """
    given = {}
    for name in sorted(recipe.weights | (recipe.texts & set(GENERATED))):
        if name not in beside:
            raise Refusal(f"{path}: no weights named {name!r}; there are {', '.join(WEIGHTS)}")
        table = beside[name]
        if table is None:
            raise Refusal(f"{path}: the recipe looks at {name}, and no table of them was given")
        given[name] = table
    return given


def the_generator(
    recipe: Recipe, encoder: TextEncoder, batches: Batches, plan: Plan, processes: Processes, state: Path
) -> Generator | None:
    """The masked language model that the recipe samples from: loaded, or made and trained on the corpus first.

    Args:
        state: the run's folder; the training of the generator is resumed there too, and what it became kept.
    """
    spec = recipe.generator
    if spec is None:
        return None
    if spec.checkpoint:
        return loaded(spec.checkpoint, encoder.config).to(processes.device).eval()
    torch.manual_seed(plan.seed)
    generator = made(spec, encoder.config).to(processes.device)
    kept = state / "generator.safetensors"
    if spec.steps and kept.is_file():
        generator.load_state_dict(load_file(kept), strict=False)
    elif spec.steps:
        alone = Recipe({"passage": View(mask=Mask("random", spec.ratio))})
        collate = batches.collate
        own = Batches(
            alone,
            collate.corpus,
            collate.vocabulary,
            batches.longest,
            batches.buckets.batch,
            batches.pieces,
            batches.seed,
            processes,
        )
        schedule = replace(plan, steps=spec.steps, warmup=spec.steps // 10, new_parts=0, probe_every=0)
        learner = Autoencoder(alone, generator.encoder, {})
        train(learner, own, schedule, processes, state / "generator", what="generator")
        generator.head = learner.head
        if processes.first:
            with whole(kept) as partial:
                save_file(dict(generator.named_parameters()), partial)
        processes.wait()
    return generator.eval()


def told(report: Report, batches: Batches, plan: Plan) -> dict[str, Any]:
    """What a run tells: last losses and accuracies, the probe, how much was read, how fast."""
    last = {name: value for name, value in report.history[-1].items() if name != "step"}
    return {
        "steps": plan.steps,
        "passages": plan.steps * batches.buckets.batch,
        "last": nested(last),
        "speed": {"tokens_per_second": report.tokens_per_second, "padding": batches.padding},
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


def dev_probe(
    queries: Path,
    qrels: Path,
    tokens: Path,
    start: Path,
    corpus: Corpus,
    longest: int,
    precision: str,
    count: int,
) -> Probe:
    """A probe of the dev queries whose positives are among ``count`` passages spread over the corpus."""
    texts = Queries.read(queries).to_pylist()
    dev = {row["query_id"]: row["text"] for row in texts if row["split"] == "dev"}
    judged = [row for row in Qrels.read(qrels).to_pylist() if row["query_id"] in dev and row["relevance"] > 0]
    row_of = {passage_id: row for row, passage_id in enumerate(Tokens.read(tokens, ["passage_id"])[0].to_pylist())}
    judged = judged[: count // 2]
    if not judged:
        raise Refusal(f"{qrels}: the probe needs dev queries with positives; use --probe 0")
    spread = np.linspace(0, len(corpus) - 1, min(count - len(judged), len(corpus))).astype(np.int64)
    rows = np.unique(np.concatenate([spread, [row_of[row["passage_id"]] for row in judged]]))
    ids = sorted({row["query_id"] for row in judged})
    positive = np.zeros((len(ids), len(rows)), dtype=bool)
    for row in judged:
        positive[ids.index(row["query_id"]), np.searchsorted(rows, row_of[row["passage_id"]])] = True
    encoded = load_tokenizer(start).encode_batch([dev[id_] for id_ in ids], add_special_tokens=False)
    asked = Ragged.of((one.ids for one in encoded), np.int32)
    return Probe(asked, corpus.passages.pieces.take(rows), positive, load_vocabulary(start), longest, precision)


def _refuse_other_models(encoder: TextEncoder, start: Path) -> None:
    if encoder.config.model_type != "bert":
        kind = encoder.config.model_type
        raise Refusal(f"{start}/config.json: model_type {kind!r}: pre-training knows the architecture 'bert' only")
