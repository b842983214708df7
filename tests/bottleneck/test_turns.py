"""Losses in turns: the same gradients as all at once, with the graph of one at a time."""

import gc
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
import torch
from torch import Tensor

from stages.bottleneck import autoencoder
from stages.bottleneck.recipe import Recipe
from stages.bottleneck.turns import Losses, in_turns
from tests.bottleneck.build import RECIPES, collated, model, named, written
from tests.conftest import World

TRAINED = [path.stem for path in sorted(RECIPES.glob("*.yaml")) if path.stem != "none"]


def at_once(losses: Losses, read: Sequence[Tensor], parameters: Sequence[Tensor]) -> Tensor:
    return sum(losses(read), torch.zeros(()))


def test_gradients_reach_what_is_read_and_the_parameters() -> None:
    torch.manual_seed(0)
    source, shared, one, idle = (torch.randn(3, requires_grad=True) for _ in range(4))

    def losses(read: Sequence[Tensor]) -> Iterator[Tensor]:
        yield (read[0] * shared).exp().sum()
        yield (read[0] * read[1] + shared * one).square().sum()
        yield torch.zeros(())  # nothing to learn from

    def grads(how: object) -> list[Tensor]:
        total = how(losses, [source.sin(), source.exp()], [shared, one, idle])  # type: ignore[operator]
        values = torch.autograd.grad(total * 0.3, [source, shared, one, idle], allow_unused=True)
        assert values[3] is None
        return [total.detach(), *values[:3]]

    torch.testing.assert_close(grads(in_turns), grads(at_once))


def test_where_nothing_is_learnt_it_is_the_sum() -> None:
    with torch.no_grad():
        assert in_turns(lambda read: iter([read[0] * 2, read[0] * 3]), [torch.tensor(1.5)], []) == 7.5


def gradients(world: World, recipe: Recipe) -> dict[str, Tensor | None]:
    net, batch = model(world, recipe).train(), collated(world, recipe)
    torch.manual_seed(0)
    net(batch, batch.counts)[0].backward()
    return {name: value.grad for name, value in net.named_parameters()}


@pytest.mark.parametrize("name", TRAINED)
def test_every_recipe_has_the_same_gradients(world: World, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    ours = gradients(world, named(name))
    monkeypatch.setattr(autoencoder, "in_turns", at_once)
    theirs = gradients(world, named(name))
    assert {key for key, value in ours.items() if value is None} == {k for k, v in theirs.items() if v is None}
    for key, value in ours.items():
        if value is not None:
            torch.testing.assert_close(
                value, theirs[key], rtol=1e-4, atol=1e-6, msg=lambda text, key=key: f"{key}: {text}"
            )


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_a_joint_generator_learns_in_either_precision(world: World, tmp_path: Path, precision: str) -> None:
    recipe = written(tmp_path, (RECIPES / "simlm.yaml").read_text().replace("frozen", "joint"))
    with torch.autocast("cpu", torch.bfloat16, enabled=precision == "bf16"):
        grads = gradients(world, recipe)
    learnt = {name for name, value in grads.items() if name.startswith("generator") and value is not None}
    assert {"generator.head.transform.dense.weight", "generator.head.bias"} <= learnt
    assert any(name.startswith("generator.encoder") for name in learnt)


class Kept:
    """Something that a graph holds on to."""

    alive = most = 0

    def __init__(self, tensor: Tensor):
        self.tensor = tensor
        Kept.alive += tensor.numel()
        Kept.most = max(Kept.most, Kept.alive)

    def __del__(self) -> None:
        Kept.alive -= self.tensor.numel()


def most_kept(world: World, count: int) -> int:
    """Numbers that the graphs of ``count`` decoders hold at most."""
    master = named("master")
    recipe = Recipe(master.encoder, {f"d{i}": master.decoders["keywords"] for i in range(count)})
    net, batch = model(world, recipe).train(), collated(world, recipe)
    gc.collect()
    Kept.alive = Kept.most = 0
    with torch.autograd.graph.saved_tensors_hooks(Kept, lambda kept: kept.tensor):
        net(batch, batch.counts)[0].backward()
    return Kept.most


def test_more_decoders_hold_no_more_activations(world: World) -> None:
    one, five = most_kept(world, 1), most_kept(world, 5)
    assert five < 1.05 * one
