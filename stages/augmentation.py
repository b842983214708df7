"""Passages → texts that pre-training reconstructs: queries they might answer, and how they might go on.

MASTER (Zhou et al. 2022, section 4.2) draws the queries from a T5 trained on MS MARCO (Nogueira and Lin 2019) and
the continuations from GPT-2. Without a checkpoint, a small model of the same class first learns on this corpus.
"""

from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from stages.artifacts.checkpoints import load_vocabulary
from stages.artifacts.documents import write_json
from stages.artifacts.files import remove
from stages.artifacts.refusal import Refusal
from stages.artifacts.scratch import scratch
from stages.artifacts.tables import Passages
from stages.generating import own
from stages.generating.loading import Family, check, load
from stages.generating.prompts import training_pairs
from stages.generating.sampling import Sampling
from stages.generating.shards import Job, join_shards, write_shards
from stages.training.precision import Numbers, Precision, resolved
from stages.training.processes import join

PassagesFile = Annotated[Path, typer.Argument(help="Passages (Parquet).")]
Backbone = Annotated[Path, typer.Argument(help="Model folder whose tokenizer and embeddings an own generator uses.")]
Out = Annotated[Path, typer.Argument(help="Texts to write (Parquet); a passage without any has no row.")]
Metrics = Annotated[Path | None, typer.Option(help="Loss, counts and speed to write (JSON).")]
NewPieces = Annotated[int, typer.Option(min=1, help="Most pieces of a text.")]
PromptPieces = Annotated[int, typer.Option(min=2, help="Most pieces of a passage that are read.")]
Temperature = Annotated[float, typer.Option(min=0.01, help="Divides the logits.")]
TopK = Annotated[int, typer.Option(min=0, help="Draw among this many best pieces; 0: all, 1: take the best.")]
TopP = Annotated[float, typer.Option(min=0.01, max=1, help="Draw among the best pieces up to this probability.")]
Seed = Annotated[int, typer.Option(min=0, help="Of the own generator and of the draws.")]
BatchPieces = Annotated[int, typer.Option(min=1, help="Most pieces, read and written, that are in work together.")]
Layers = Annotated[int, typer.Option(min=1, help="Own generator: layers (of encoder and decoder each).")]
Width = Annotated[int, typer.Option(min=32, help="Own generator: dimensions, a multiple of 32.")]
Steps = Annotated[int, typer.Option(min=1, help="Own generator: optimiser steps.")]
Batch = Annotated[int, typer.Option(min=1, help="Own generator: texts in a step.")]
LearningRate = Annotated[float, typer.Option(min=0, help="Own generator: peak learning rate.")]


def doc2query(
    passages: PassagesFile,
    queries: Annotated[Path, typer.Argument(help="Queries (Parquet); none but the training split is used.")],
    qrels: Annotated[Path, typer.Argument(help="Qrels (Parquet).")],
    backbone: Backbone,
    out: Out,
    metrics: Metrics = None,
    checkpoint: Annotated[str | None, typer.Option(help="Encoder–decoder: hub id or folder; else an own one.")] = None,
    count: Annotated[int, typer.Option(min=1, help="Queries for each passage.")] = 3,
    new_pieces: NewPieces = 24,
    prompt_pieces: PromptPieces = 64,
    temperature: Temperature = 1.0,
    top_k: TopK = 10,
    top_p: TopP = 1.0,
    seed: Seed = 1,
    batch_pieces: BatchPieces = 16_384,
    precision: Precision = "auto",
    layers: Layers = 1,
    width: Width = 192,
    steps: Steps = 400,
    batch: Batch = 16,
    learning_rate: LearningRate = 3e-3,
) -> None:
    """Write ``count`` queries for every passage, one a line.

    Without a checkpoint an encoder–decoder first learns from the (passage → query) pairs of the training split.
    """
    precision = resolved(precision)
    job = Job(Sampling(count, new_pieces, temperature, top_k, top_p), prompt_pieces, batch_pieces, seed)
    if checkpoint is not None:
        source = hub_or_folder(checkpoint, "encoder-decoder", job, passages)
    else:
        school = own.School(layers, width, steps, batch, learning_rate, seed, precision)
        pairs = training_pairs(passages, queries, qrels)
        longest = (prompt_pieces, new_pieces)
        lesson = partial(own.learn_queries, backbone, passages, pairs, longest, school)
        source = own_generator(lesson, school, backbone, [passages, queries, qrels])
    _generate("doc2query", "encoder-decoder", source, passages, job, precision, out, metrics)


def continuations(
    passages: PassagesFile,
    backbone: Backbone,
    out: Out,
    metrics: Metrics = None,
    checkpoint: Annotated[str | None, typer.Option(help="Causal model: hub id or folder; else an own one.")] = None,
    new_pieces: NewPieces = 32,
    prompt_pieces: PromptPieces = 64,
    temperature: Temperature = 1.0,
    top_k: TopK = 50,
    top_p: TopP = 0.95,
    seed: Seed = 1,
    batch_pieces: BatchPieces = 16_384,
    precision: Precision = "auto",
    layers: Layers = 2,
    width: Width = 192,
    steps: Steps = 240,
    batch: Batch = 8,
    learning_rate: LearningRate = 3e-3,
) -> None:
    """Write what might come after every passage.

    Without a checkpoint a causal language model first learns from the passages.
    """
    precision = resolved(precision)
    job = Job(Sampling(1, new_pieces, temperature, top_k, top_p), prompt_pieces, batch_pieces, seed)
    if checkpoint is not None:
        source = hub_or_folder(checkpoint, "causal", job, passages)
    else:
        school = own.School(layers, width, steps, batch, learning_rate, seed, precision)
        lesson = partial(own.learn_language, backbone, passages, prompt_pieces + new_pieces, school)
        source = own_generator(lesson, school, backbone, [passages])
    _generate("continuations", "causal", source, passages, job, precision, out, metrics)


@dataclass(frozen=True)
class Source:
    """Where the generator comes from.

    Attributes:
        checkpoint: hub id or folder; None for an own generator.
        learn: trains an own generator and writes it below the folder that it is given.
        settings, inputs: what the generator depends on, beside the settings of the texts.
    """

    checkpoint: str | None
    learn: Callable[[Path], None]
    settings: dict[str, Any]
    inputs: list[Path]


def hub_or_folder(checkpoint: str, family: Family, job: Job, passages: Path) -> Source:
    """A checkpoint that exists and fits; there is nothing to learn."""
    check(checkpoint, family, job.prompt_pieces, job.how)
    folder = [Path(checkpoint)] if Path(checkpoint).is_dir() else []
    return Source(checkpoint, lambda _: None, {"checkpoint": checkpoint}, [passages, *folder])


def own_generator(learn: Callable[[Path], None], school: own.School, backbone: Path, inputs: list[Path]) -> Source:
    """A generator that will learn, from a backbone that has the special pieces it needs."""
    load_vocabulary(backbone)
    return Source(None, learn, asdict(school), [*inputs, backbone])


def _generate(
    stage: str,
    family: Family,
    source: Source,
    passages: Path,
    job: Job,
    precision: Numbers,
    out: Path,
    metrics: Path | None,
) -> None:
    """Learn if need be, write the shards, join them, and forget the work in between."""
    if not Passages.count(passages):
        raise Refusal(f"{passages}: no rows")
    processes = join()
    folder = scratch(stage, {**source.settings, **asdict(job), "precision": precision}, source.inputs)
    if processes.first:  # one process alone: a generator must not depend on how many there are
        source.learn(folder)
    processes.wait()
    generator = load(source.checkpoint or str(folder / own.FOLDER), family, precision, processes.device)
    speed = write_shards(generator, passages, folder, job, processes)
    processes.wait()
    if processes.first:
        counts = join_shards(folder, out)
        if metrics is not None:
            learnt = own.report(folder) if source.checkpoint is None else {}
            write_json(metrics, learnt | counts.metrics() | {"speed": {"texts": round(speed)}})
        remove(folder)
