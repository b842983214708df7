"""Encoder, qrels and a run of negatives → retriever: 1 (BM25's negatives), 2 (mined ones), distilled (a teacher)."""

import math
from pathlib import Path
from typing import Annotated, Literal

import typer

from stages.artifacts.checkpoints import load_encoder, load_tokenizer, load_vocabulary, save_encoder
from stages.artifacts.documents import write_json
from stages.artifacts.files import remove
from stages.artifacts.ragged import read_ragged
from stages.artifacts.refusal import Refusal
from stages.artifacts.scratch import scratch
from stages.artifacts.tables import Tokens
from stages.embedding.pieces import tokenised
from stages.embedding.probe import Probe, dev_sample
from stages.ranking.biencoder import UNCACHED, Batches, Retriever
from stages.ranking.groups import Inputs, Rules, read_groups
from stages.ranking.sampling import Sampler, told
from stages.training.curves import Curves
from stages.training.loop import Plan, train
from stages.training.processes import join

TEMPERATURE = {"cosine": 0.02, "dot": 1.0}


def retriever(
    encoder: Annotated[Path, typer.Argument(help="Model folder to start from.")],
    tokens: Annotated[Path, typer.Argument(help="Tokens table of the corpus.")],
    queries: Annotated[Path, typer.Argument(help="Queries table.")],
    qrels: Annotated[Path, typer.Argument(help="Qrels table.")],
    passages: Annotated[Path, typer.Argument(help="Passages table: tells which passages read the same.")],
    out: Annotated[Path, typer.Argument(help="Model folder to write.")],
    metrics: Annotated[Path, typer.Option(help="JSON file to write.")],
    negatives: Annotated[Path | None, typer.Option(help="Run that proposes negatives; none: in-batch only.")] = None,
    teacher: Annotated[Path | None, typer.Option(help="Run with a teacher's scores to distil.")] = None,
    curves: Annotated[Path | None, typer.Option(help="Folder of training curves to write.")] = None,
    epochs: Annotated[float, typer.Option(min=0.0, help="Passes over the training queries.")] = 3.0,
    steps: Annotated[int | None, typer.Option(min=1, help="Optimiser steps; overrides epochs.")] = None,
    batch: Annotated[int, typer.Option(min=2, help="Queries per step, over all processes.")] = 32,
    group: Annotated[int, typer.Option(min=2, help="Passages per query: a positive and hard negatives.")] = 8,
    depth: Annotated[int, typer.Option(min=1, help="Deepest rank that gives negatives.")] = 200,
    first: Annotated[int, typer.Option(min=1, help="First rank that gives negatives.")] = 1,
    margin: Annotated[
        float | None, typer.Option(help="Drop negatives that score above the positive's score minus this.")
    ] = None,
    draw: Annotated[
        Literal["sample", "rotate"], typer.Option(help="Negatives of an epoch: drawn anew, or round robin.")
    ] = "sample",
    fill: Annotated[bool, typer.Option(help="Fill groups that lack negatives with random passages.")] = True,
    fraction: Annotated[float, typer.Option(min=0.0, max=1.0, help="Share of the training queries used.")] = 1.0,
    learning_rate: Annotated[float, typer.Option(min=0.0, help="Peak learning rate.")] = 2e-5,
    warmup: Annotated[float, typer.Option(min=0.0, max=1.0, help="Share of the steps that warm up.")] = 0.1,
    weight_decay: Annotated[float, typer.Option(min=0.0, help="AdamW's weight decay.")] = 0.01,
    similarity: Annotated[Literal["cosine", "dot"], typer.Option(help="How vectors are compared.")] = "cosine",
    temperature: Annotated[
        float | None, typer.Option(min=1e-4, help="τ; by default 0.02 for cosine, 1 for dot.")
    ] = None,
    denominator: Annotated[
        Literal["eq3", "infonce", "release"], typer.Option(help="What a positive competes with.")
    ] = "eq3",
    alpha: Annotated[float, typer.Option(min=0.0, help="Weight of the contrastive loss beside a teacher.")] = 0.2,
    longest: Annotated[int, typer.Option(min=3, help="Pieces of a passage, special ones included.")] = 128,
    longest_query: Annotated[int, typer.Option(min=3, help="Pieces of a query, special ones included.")] = 32,
    dropout: Annotated[float, typer.Option(min=0.0, max=0.9, help="Dropout probability.")] = 0.0,
    chunk: Annotated[int, typer.Option(min=0, help="Pieces encoded at once with gradient caching; 0: no caching.")] = 0,
    probe_every: Annotated[int, typer.Option(min=0, help="Steps between probes on dev queries; 0: none.")] = 0,
    probe_queries: Annotated[int, typer.Option(min=1, help="Dev queries in a probe.")] = 200,
    probe_passages: Annotated[int, typer.Option(min=1, help="Passages that a probe ranks.")] = 1000,
    seed: Annotated[int, typer.Option(min=0, help="Seed of everything random.")] = 0,
    precision: Annotated[Literal["bf16", "fp32"], typer.Option(help="Precision of matrix products.")] = "bf16",
    checkpoint: Annotated[float, typer.Option(min=0.0, help="Seconds between resumable states.")] = 60.0,
) -> None:
    """Fine-tune an encoder on queries, their positives, in-batch and hard negatives (SimLM's pipeline)."""
    settings = {name: value for name, value in locals().items() if not isinstance(value, Path)}
    if teacher and not negatives:
        raise Refusal("--teacher needs --negatives: the run whose passages the teacher has scored")
    processes = join()
    inputs = Inputs(tokens, queries, qrels, passages, negatives, teacher)
    asking, ids, groups = read_groups(inputs, Rules(first, depth, margin), seed, fraction)
    sampler = Sampler(groups, batch, group if negatives else 1, seed, draw, fill)
    sampler.refuse(str(negatives), processes.world)
    tokenizer, vocabulary = load_tokenizer(encoder), load_vocabulary(encoder)
    pieces = read_ragged(Tokens, tokens, "pieces")
    model = load_encoder(encoder, dropout)
    model.normalise = similarity == "cosine"
    probe = None
    if probe_every:
        sample = dev_sample(queries, qrels, ids, tokenizer, probe_queries, probe_passages, seed)
        probe = Probe(model, sample, pieces, vocabulary, longest_query, longest, precision, "dev ")
    asked_pieces = tokenised(asking.texts, tokenizer)
    limits = longest_query, longest, chunk or UNCACHED
    batches = Batches(sampler, asked_pieces, pieces, vocabulary, *limits, processes)
    scale = 1 / (temperature or TEMPERATURE[similarity])
    steps = steps or max(1, math.ceil(epochs * len(groups) / batch))
    plan = Plan(
        steps,
        learning_rate,
        warmup=round(warmup * steps),
        weight_decay=weight_decay,
        seed=seed,
        precision=precision,
        probe_every=probe_every,
        checkpoint=checkpoint,
    )
    state = scratch("retriever", settings, [encoder, *inputs.paths])
    report = train(
        Retriever(model, processes, scale, denominator, alpha, chunk > 0),
        batches,
        plan,
        processes,
        state,
        Curves(curves if processes.first else None),
        probe,
        "retriever",
    )
    if processes.first:
        save_encoder(model, encoder, out)
        write_json(metrics, told(sampler, report))
        remove(state)
