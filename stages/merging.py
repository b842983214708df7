"""Retrievers of one shape → the weighted mean of their weights."""

from pathlib import Path
from typing import Annotated

import torch
import typer

from stages.artifacts.names import TOKENIZER
from stages.artifacts.refusal import Refusal
from stages.ranking.towers import Towers, save_towers, stored_towers


def merge(
    models: Annotated[
        list[Path],
        typer.Argument(help="Model folders of one shape and tokenizer; the first says what else holds."),
    ],
    out: Annotated[Path, typer.Option(help="Model folder to write.")],
    weights: Annotated[
        list[float] | None, typer.Option(help="One for every model, adding up to 1; all alike by default.")
    ] = None,
) -> None:
    """Average a retriever with what it was fine-tuned from, or several retrievers with each other.

    Who learns one collection forgets others; on the straight line between backbone and retriever lie models that
    lose little of the one and less of the other (Wortsman et al. 2022, WiSE-FT, <https://arxiv.org/abs/2109.01903>;
    Xiao et al. 2023, LM-Cocktail, <https://arxiv.org/abs/2311.13534>). No text is read.
    """
    shares = weights or [1 / len(models)] * len(models)
    if len(shares) != len(models) or abs(sum(shares) - 1) > 1e-6:
        raise Refusal(f"--weights: {', '.join(map(str, shares))}: should be {len(models)} that add up to 1")
    parents = [stored_towers(folder) for folder in models]
    for folder, parent in zip(models, parents, strict=True):
        _refuse_unlike(folder, parent, models[0], parents[0])
    with torch.no_grad():
        for parts in zip(*(parent.parameters() for parent in parents), strict=True):
            mean = sum(share * part.double() for share, part in zip(shares, parts, strict=True))
            parts[0].copy_(mean)
    save_towers(parents[0], models[0], out)


def _refuse_unlike(folder: Path, model: Towers, first: Path, like: Towers) -> None:
    """Raise `Refusal` where a mean of the two would mean nothing."""
    if (folder / TOKENIZER).read_bytes() != (first / TOKENIZER).read_bytes():
        raise Refusal(f"{folder / TOKENIZER}: is not that of {first}")
    ours, others = _shapes(model), _shapes(like)
    for mine, theirs in zip(ours, others, strict=False):
        if mine != theirs:
            raise Refusal(f"{folder}: {mine[0]}: {mine[1]}, but {theirs[1]} in {first}")
    if len(ours) != len(others):
        raise Refusal(f"{folder}: is not made of the same parts as {first}")


def _shapes(model: Towers) -> list[tuple[str, object]]:
    """What models must have in common: how they pool, what is kept of a bag, every parameter's name and shape."""
    encoder, bag = model.passage, model.bag
    shared: list[tuple[str, object]] = [("pooling", encoder.pooling)]
    shared += [] if bag is None else [("kept", bag.kept), ("dense", bag.dense)]
    return shared + [(name, tuple(part.shape)) for name, part in model.named_parameters()]
