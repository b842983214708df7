"""A loss across the batch: several processes are one, whatever each of them happens to hold."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import multiprocessing as mp

from stages.bottleneck.decoders.contrastive import contrast, gathered
from stages.bottleneck.recipe import Recipe
from stages.training.loop import Plan, train
from stages.training.processes import Processes
from tests.bottleneck.build import ALONE, batches, model, named
from tests.conftest import World

CPU = torch.device("cpu")
BATCH = 15  # among two: one process has a passage more than the other
RECIPES = ("contrast", "whole")
PIECES = (10_000, 70)  # padded pieces of a micro-batch: one of them, or several


def recipe(name: str) -> Recipe:
    whole = named("cocondenser")
    if name == "whole":
        return whole
    encoder = {name: replace(view, predict="none") for name, view in whole.encoder.items()}
    return Recipe(encoder, {"contrast": whole.decoders["contrast"]})


def gradients(world: World, name: str, who: Processes, pieces: int) -> tuple[dict[str, torch.Tensor], float]:
    """Summed over processes, as the loop does; and the loss of all processes."""
    net = model(world, recipe(name), who=who)
    generator = torch.Generator().manual_seed(0)
    for matrix in (value for value in net.encoder.parameters() if value.ndim > 1):
        torch.nn.init.normal_(matrix, std=0.2, generator=generator)  # so that vectors are not all alike
    parts = batches(world, recipe(name), BATCH, pieces, who)(0)
    totals = {key: int(who.total(torch.tensor(sum(part.counts[key] for part in parts)))) for key in parts[0].counts}
    loss = torch.zeros(())
    for part in parts:
        share, _ = net(part, totals)
        share.backward()
        loss += share.detach()
    found = {
        key: torch.zeros_like(value) if value.grad is None else value.grad for key, value in net.named_parameters()
    }
    return {key: who.total(value) for key, value in found.items()}, who.total(loss).item()


def one_of_two(rank: int, home: str, folder: str) -> None:
    world = World(Path(home))
    torch.distributed.init_process_group("gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=2)
    who = Processes(rank, 2, CPU)
    spans, names = torch.arange(12.0).view(3, 2, 2)[: 3 * rank], torch.tensor([7, 8, 9])[: 3 * rank]
    everyone, documents, mine = gathered(spans, names, who)  # none here, three there
    assert torch.equal(everyone, torch.arange(12.0).view(3, 2, 2))
    assert documents.tolist() == [7, 8, 9]
    assert mine.sum() == 3 * rank
    for name in RECIPES:
        torch.save(gradients(world, name, who, PIECES[0]), f"{folder}/{name}-{rank}.pt")
    plan = Plan(steps=4, learning_rate=3e-3, precision="fp32", log_every=2)
    net = model(world, recipe("contrast"), who=who)  # however small the micro-batches, all come to each of them
    train(net, batches(world, recipe("contrast"), BATCH, PIECES[1], who), plan, who, Path(folder) / f"cut-{rank}")
    torch.distributed.destroy_process_group()


def test_several_processes_are_one(world: World, tmp_path: Path) -> None:
    mp.spawn(one_of_two, (str(world.folder), str(tmp_path)), nprocs=2)
    for name in RECIPES:
        alone, loss = gradients(world, name, ALONE, PIECES[0])
        largest = max(value.abs().max().item() for value in alone.values())
        for rank in range(2):
            others, seen = torch.load(tmp_path / f"{name}-{rank}.pt")
            assert seen == pytest.approx(loss, rel=1e-5)
            for key, value in alone.items():
                torch.testing.assert_close(others[key], value, rtol=1e-4, atol=1e-5 * largest)


@pytest.mark.parametrize("size", [2, 3, 5])
def test_every_process_cuts_at_the_same_places(world: World, size: int) -> None:
    for step in range(4):
        parts = [
            batches(world, recipe("contrast"), BATCH, 90, Processes(rank, size, CPU))(step) for rank in range(size)
        ]
        assert len({len(part) for part in parts}) == 1
        held = sum(len(one.views["encoder/passage"].rows) for part in parts for one in part)
        assert held == BATCH


def test_a_micro_batch_without_pairs_costs_nothing() -> None:
    spans = torch.zeros(0, 2, 4, requires_grad=True)
    assert contrast(spans, torch.zeros(0, dtype=torch.int32)).sum() == 0
