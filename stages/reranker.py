"""Qrels and a run of negatives → cross-encoder, the teacher of the distilled retriever."""

from pathlib import Path
from typing import Annotated

import typer

from stages.artifacts.checkpoints import load_tokenizer, load_vocabulary
from stages.artifacts.documents import write_json
from stages.artifacts.files import remove
from stages.artifacts.ragged import read_ragged
from stages.artifacts.refusal import Refusal
from stages.artifacts.scratch import scratch
from stages.artifacts.tables import Tokens
from stages.embedding.pieces import tokenised
from stages.ranking import options
from stages.ranking.crossencoder import Batches, Pairs, Reranker, load_crossencoder, save_crossencoder
from stages.ranking.groups import Inputs, Rules, read_groups, with_prior
from stages.ranking.sampling import Sampler, told
from stages.ranking.spelling import refuse_other_pieces
from stages.training.curves import Curves
from stages.training.loop import train
from stages.training.precision import Precision, resolved
from stages.training.processes import join


def reranker(
    encoder: options.Encoder,
    tokens: options.TokensFile,
    queries: options.QueriesFile,
    qrels: options.QrelsFile,
    passages: options.PassagesFile,
    out: options.Model,
    negatives: Annotated[list[Path], typer.Option(help="Run that proposes negatives; several are mixed.")],
    metrics: options.Metrics,
    answers: options.Answers = None,
    curves: options.CurvesFolder = None,
    epochs: options.Epochs = 2.0,
    steps: options.Steps = None,
    batch: Annotated[int, typer.Option(min=1, help="Queries per step, over all processes.")] = 16,
    group: options.Group = 16,
    depth: options.Depth = 100,
    first: options.First = 1,
    margin: options.Margin = None,
    draw: options.Draw = "sample",
    prior: Annotated[
        float, typer.Option(min=0.0, help="Weight of the (first) run's own score beside the logit, as in rescore.")
    ] = 0.0,
    fill: options.Fill = True,
    fraction: options.Fraction = 1.0,
    learning_rate: options.LearningRate = 5e-5,
    warmup: options.Warmup = 0.1,
    weight_decay: options.WeightDecay = 0.01,
    longest: options.LongestPair = 160,
    longest_query: options.QueryInPair = 32,
    dropout: options.Dropout = 0.0,
    factor: Annotated[
        int, typer.Option(min=1, help="Learn from the group / factor passages that score highest (and the positive).")
    ] = 1,
    r_drop: Annotated[bool, typer.Option(help="Two passes with different dropout must agree.")] = False,
    budget: Annotated[int, typer.Option(min=1, help="Pieces in a micro-batch, padding included.")] = 16_384,
    seed: options.Seed = 0,
    precision: Precision = "auto",
    checkpoint: options.Checkpoint = 60.0,
) -> None:
    """Train a cross-encoder to choose a positive among mined negatives (listwise softmax)."""
    precision = resolved(precision)
    settings = options.plain(locals())
    if r_drop and not dropout:
        raise Refusal("--r-drop needs --dropout above 0: without it two passes are one")
    if group // factor < 2:
        raise Refusal(f"--factor {factor}: leaves no negative of --group {group}")
    processes = join()
    inputs = Inputs(tokens, queries, qrels, passages, tuple(negatives), answers=answers)
    asking, ids, groups = read_groups(inputs, Rules(first, depth, margin), seed, fraction)
    groups = with_prior(groups, negatives[0], asking, ids) if prior else groups
    refuse_other_pieces(encoder, tokens, passages)
    sampler = Sampler(groups, batch, group, seed, draw, fill)
    sampler.refuse(", ".join(map(str, negatives)), processes.world)
    tokenizer, vocabulary = load_tokenizer(encoder), load_vocabulary(encoder)
    asked_pieces = tokenised(asking.texts, tokenizer)
    pairs = Pairs(asked_pieces, read_ragged(Tokens, tokens, "pieces"), vocabulary, longest, longest_query)
    model = load_crossencoder(encoder, dropout, seed)
    optimiser = learning_rate, warmup, weight_decay, seed, precision, checkpoint
    course = options.plan(len(groups), batch, epochs, steps, *optimiser)
    state = scratch("reranker", settings, [encoder, *inputs.paths])
    batches = Batches(sampler, pairs, budget, budget, processes)
    shown = Curves(curves if processes.first else None)
    report = train(Reranker(model, prior, factor, r_drop), batches, course, processes, state, shown, what="reranker")
    if processes.first:
        save_crossencoder(model, encoder, out)
        write_json(metrics, told(sampler, report))
        remove(state)
