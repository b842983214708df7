"""The options that the chapters of the second half share, and what they add up to."""

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from stages.training.loop import Plan
from stages.training.precision import Numbers

Encoder = Annotated[Path, typer.Argument(help="Model folder to start from.")]
TokensFile = Annotated[Path, typer.Argument(help="Tokens table of the corpus.")]
QueriesFile = Annotated[Path, typer.Argument(help="Queries table.")]
QrelsFile = Annotated[Path, typer.Argument(help="Qrels table.")]
PassagesFile = Annotated[Path, typer.Argument(help="Passages table: tells which passages read the same.")]
Model = Annotated[Path, typer.Argument(help="Model folder to write.")]
RunOut = Annotated[Path, typer.Argument(help="Run to write.")]
Metrics = Annotated[Path, typer.Option(help="JSON file to write.")]
MetricsIfAny = Annotated[Path | None, typer.Option(help="JSON file to write.")]
CurvesFolder = Annotated[Path | None, typer.Option(help="Folder of training curves to write.")]

Epochs = Annotated[float, typer.Option(min=0.0, help="Passes over the training queries.")]
Steps = Annotated[int | None, typer.Option(min=1, help="Optimiser steps; overrides epochs.")]
LearningRate = Annotated[float, typer.Option(min=0.0, help="Peak learning rate.")]
Warmup = Annotated[float, typer.Option(min=0.0, max=1.0, help="Share of the steps that warm up.")]
WeightDecay = Annotated[float, typer.Option(min=0.0, help="AdamW's weight decay.")]
Dropout = Annotated[float, typer.Option(min=0.0, max=0.9, help="Dropout probability.")]
Seed = Annotated[int, typer.Option(min=0, help="Seed of everything random.")]
Checkpoint = Annotated[float, typer.Option(min=0.0, help="Seconds between resumable states.")]

Answers = Annotated[Path | None, typer.Option(help="Answers table: a passage that holds an answer is no negative.")]
Group = Annotated[int, typer.Option(min=2, help="Passages per query: a positive and hard negatives.")]
Depth = Annotated[int, typer.Option(min=1, help="Deepest rank that gives negatives.")]
First = Annotated[int, typer.Option(min=1, help="First rank that gives negatives.")]
Margin = Annotated[float | None, typer.Option(help="Drop negatives that score above the positive's score minus this.")]
Draw = Annotated[Literal["sample", "rotate"], typer.Option(help="Negatives of an epoch: drawn anew, or round robin.")]
Fill = Annotated[bool, typer.Option(help="Fill groups that lack negatives with random passages.")]
Fraction = Annotated[float, typer.Option(min=0.0, max=1.0, help="Share of the training queries used.")]

Splits = Annotated[list[str] | None, typer.Option(help="Splits of the queries; by default all three.")]
Longest = Annotated[int, typer.Option(min=3, help="Pieces of a passage, special ones included.")]
LongestQuery = Annotated[int, typer.Option(min=3, help="Pieces of a query, special ones included.")]
LongestPair = Annotated[int, typer.Option(min=8, help="Pieces of a pair, special ones included.")]
QueryInPair = Annotated[int, typer.Option(min=3, help="Pieces of a query as a text of its own.")]


def plan(
    queries: int,
    batch: int,
    epochs: float,
    steps: int | None,
    learning_rate: float,
    warmup: float,
    weight_decay: float,
    seed: int,
    precision: Numbers,
    checkpoint: float,
    probe_every: int = 0,
) -> Plan:
    """The plan for this many training queries: epochs, and shares of the steps, become steps."""
    steps = steps or max(1, math.ceil(epochs * queries / batch))
    return Plan(
        steps,
        learning_rate,
        warmup=round(warmup * steps),
        weight_decay=weight_decay,
        seed=seed,
        precision=precision,
        probe_every=probe_every,
        checkpoint=checkpoint,
    )


def plain(given: Mapping[str, Any]) -> dict[str, Any]:
    """The options that are no paths: what a run's fingerprint holds beside the contents of its inputs."""
    return {name: value for name, value in given.items() if not isinstance(value, Path | list)}
