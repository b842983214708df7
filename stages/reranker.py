"""Qrels and a run of negatives → cross-encoder, the teacher of the distilled retriever."""

import math
from pathlib import Path
from typing import Annotated, Literal

import typer

from stages.artifacts.checkpoints import load_tokenizer, load_vocabulary
from stages.artifacts.documents import write_json
from stages.artifacts.files import remove
from stages.artifacts.ragged import read_ragged
from stages.artifacts.scratch import scratch
from stages.artifacts.tables import Tokens
from stages.embedding.pieces import tokenised
from stages.ranking.crossencoder import Batches, Pairs, Reranker, load_crossencoder, save_crossencoder
from stages.ranking.groups import Inputs, Rules, read_groups, with_prior
from stages.ranking.sampling import Sampler, told
from stages.training.curves import Curves
from stages.training.loop import Plan, train
from stages.training.processes import join


def reranker(
    encoder: Annotated[Path, typer.Argument(help="Model folder to start from.")],
    tokens: Annotated[Path, typer.Argument(help="Tokens table of the corpus.")],
    queries: Annotated[Path, typer.Argument(help="Queries table.")],
    qrels: Annotated[Path, typer.Argument(help="Qrels table.")],
    passages: Annotated[Path, typer.Argument(help="Passages table: tells which passages read the same.")],
    out: Annotated[Path, typer.Argument(help="Model folder to write.")],
    negatives: Annotated[Path, typer.Option(help="Run that proposes negatives.")],
    metrics: Annotated[Path, typer.Option(help="JSON file to write.")],
    curves: Annotated[Path | None, typer.Option(help="Folder of training curves to write.")] = None,
    epochs: Annotated[float, typer.Option(min=0.0, help="Passes over the training queries.")] = 2.0,
    steps: Annotated[int | None, typer.Option(min=1, help="Optimiser steps; overrides epochs.")] = None,
    batch: Annotated[int, typer.Option(min=1, help="Queries per step, over all processes.")] = 16,
    group: Annotated[int, typer.Option(min=2, help="Passages per query: a positive and hard negatives.")] = 16,
    depth: Annotated[int, typer.Option(min=1, help="Deepest rank that gives negatives.")] = 100,
    first: Annotated[int, typer.Option(min=1, help="First rank that gives negatives.")] = 1,
    margin: Annotated[
        float | None, typer.Option(help="Drop negatives that score above the positive's score minus this.")
    ] = None,
    draw: Annotated[
        Literal["sample", "rotate"], typer.Option(help="Negatives of an epoch: drawn anew, or round robin.")
    ] = "sample",
    prior: Annotated[
        float, typer.Option(min=0.0, help="Weight of the run's own score beside the logit, as in rescore.")
    ] = 0.0,
    fill: Annotated[bool, typer.Option(help="Fill groups that lack negatives with random passages.")] = True,
    fraction: Annotated[float, typer.Option(min=0.0, max=1.0, help="Share of the training queries used.")] = 1.0,
    learning_rate: Annotated[float, typer.Option(min=0.0, help="Peak learning rate.")] = 5e-5,
    warmup: Annotated[float, typer.Option(min=0.0, max=1.0, help="Share of the steps that warm up.")] = 0.1,
    weight_decay: Annotated[float, typer.Option(min=0.0, help="AdamW's weight decay.")] = 0.01,
    longest: Annotated[int, typer.Option(min=8, help="Pieces of a pair, special ones included.")] = 160,
    longest_query: Annotated[int, typer.Option(min=3, help="Pieces of a query as a text of its own.")] = 32,
    dropout: Annotated[float, typer.Option(min=0.0, max=0.9, help="Dropout probability.")] = 0.0,
    budget: Annotated[int, typer.Option(min=1, help="Pieces in a micro-batch, padding included.")] = 16_384,
    seed: Annotated[int, typer.Option(min=0, help="Seed of everything random.")] = 0,
    precision: Annotated[Literal["bf16", "fp32"], typer.Option(help="Precision of matrix products.")] = "bf16",
    checkpoint: Annotated[float, typer.Option(min=0.0, help="Seconds between resumable states.")] = 60.0,
) -> None:
    """Train a cross-encoder to choose a positive among mined negatives (listwise softmax)."""
    settings = {name: value for name, value in locals().items() if not isinstance(value, Path)}
    processes = join()
    inputs = Inputs(tokens, queries, qrels, passages, negatives)
    asking, ids, groups = read_groups(inputs, Rules(first, depth, margin), seed, fraction)
    groups = with_prior(groups, negatives, asking, ids) if prior else groups
    sampler = Sampler(groups, batch, group, seed, draw, fill)
    sampler.refuse(str(negatives), processes.world)
    tokenizer, vocabulary = load_tokenizer(encoder), load_vocabulary(encoder)
    asked_pieces = tokenised(asking.texts, tokenizer)
    pairs = Pairs(asked_pieces, read_ragged(Tokens, tokens, "pieces"), vocabulary, longest, longest_query)
    model = load_crossencoder(encoder, dropout, seed)
    steps = steps or max(1, math.ceil(epochs * len(groups) / batch))
    plan = Plan(
        steps,
        learning_rate,
        warmup=round(warmup * steps),
        weight_decay=weight_decay,
        seed=seed,
        precision=precision,
        checkpoint=checkpoint,
    )
    state = scratch("reranker", settings, [encoder, *inputs.paths])
    batches = Batches(sampler, pairs, budget, budget, processes)
    shown = Curves(curves if processes.first else None)
    report = train(Reranker(model, prior), batches, plan, processes, state, shown, what="reranker")
    if processes.first:
        save_crossencoder(model, encoder, out)
        write_json(metrics, told(sampler, report))
        remove(state)
