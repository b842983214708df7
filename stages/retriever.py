"""Encoder, qrels and a run of negatives → retriever: 1 (BM25's negatives), 2 (mined ones), distilled (a teacher)."""

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
from stages.ranking import options
from stages.ranking.biencoder import UNCACHED, Batches, Retriever
from stages.ranking.groups import Inputs, Rules, read_groups
from stages.ranking.pieces import tokenised
from stages.ranking.probe import Probe, dev_sample
from stages.ranking.sampling import Sampler, told
from stages.training.curves import Curves
from stages.training.loop import train
from stages.training.processes import join

TEMPERATURE = {"cosine": 0.02, "dot": 1.0}


def retriever(
    encoder: options.Encoder,
    tokens: options.TokensFile,
    queries: options.QueriesFile,
    qrels: options.QrelsFile,
    passages: options.PassagesFile,
    out: options.Model,
    metrics: options.Metrics,
    negatives: Annotated[Path | None, typer.Option(help="Run that proposes negatives; none: in-batch only.")] = None,
    teacher: Annotated[Path | None, typer.Option(help="Run with a teacher's scores to distil.")] = None,
    curves: options.CurvesFolder = None,
    epochs: options.Epochs = 3.0,
    steps: options.Steps = None,
    batch: Annotated[int, typer.Option(min=2, help="Queries per step, over all processes.")] = 32,
    group: options.Group = 8,
    depth: options.Depth = 200,
    first: options.First = 1,
    margin: options.Margin = None,
    draw: options.Draw = "sample",
    fill: options.Fill = True,
    fraction: options.Fraction = 1.0,
    learning_rate: options.LearningRate = 2e-5,
    warmup: options.Warmup = 0.1,
    weight_decay: options.WeightDecay = 0.01,
    similarity: Annotated[Literal["cosine", "dot"], typer.Option(help="How vectors are compared.")] = "cosine",
    temperature: Annotated[
        float | None, typer.Option(min=1e-4, help="τ; by default 0.02 for cosine, 1 for dot.")
    ] = None,
    denominator: Annotated[
        Literal["eq3", "infonce", "release"], typer.Option(help="What a positive competes with.")
    ] = "eq3",
    alpha: Annotated[float, typer.Option(min=0.0, help="Weight of the contrastive loss beside a teacher.")] = 0.2,
    longest: options.Longest = 128,
    longest_query: options.LongestQuery = 32,
    dropout: options.Dropout = 0.0,
    chunk: Annotated[int, typer.Option(min=0, help="Pieces encoded at once with gradient caching; 0: no caching.")] = 0,
    probe_every: Annotated[int, typer.Option(min=0, help="Steps between probes on dev queries; 0: none.")] = 0,
    probe_queries: Annotated[int, typer.Option(min=1, help="Dev queries in a probe.")] = 200,
    probe_passages: Annotated[int, typer.Option(min=1, help="Passages that a probe ranks.")] = 1000,
    seed: options.Seed = 0,
    precision: options.Precision = "bf16",
    checkpoint: options.Checkpoint = 60.0,
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
        dev, positives, sample = dev_sample(queries, qrels, ids, tokenizer, probe_queries, probe_passages, seed)
        probe = Probe(model, dev, positives, pieces, sample, vocabulary, longest_query, longest, precision)
    asked_pieces = tokenised(asking.texts, tokenizer)
    limits = longest_query, longest, chunk or UNCACHED
    batches = Batches(sampler, asked_pieces, pieces, vocabulary, *limits, processes)
    scale = 1 / (temperature or TEMPERATURE[similarity])
    optimiser = learning_rate, warmup, weight_decay, seed, precision, checkpoint, probe_every
    course = options.plan(len(groups), batch, epochs, steps, *optimiser)
    state = scratch("retriever", settings, [encoder, *inputs.paths])
    report = train(
        Retriever(model, processes, scale, denominator, alpha, chunk > 0),
        batches,
        course,
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
