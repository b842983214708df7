"""Losses that read the same tensors, taken in turns: the graph of one is gone before the next is made.

Decoders share nothing but what they read and a few parameters. Backpropagated one after the other, down to what
they read, their activations never live at once, and the encoder is backpropagated once for all of them.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

Losses = Callable[[Sequence[Tensor]], Iterator[Tensor]]  # what is read → one scalar after another


def in_turns(losses: Losses, read: Sequence[Tensor], parameters: Sequence[Tensor]) -> Tensor:
    """The sum of the losses, with gradients to ``read`` and ``parameters``; all else is constant to them."""
    if not torch.is_grad_enabled():
        return sum(losses(read), torch.zeros((), device=read[0].device))
    total: Tensor = _Turns.apply(losses, len(read), *read, *parameters)  # type: ignore[no-untyped-call]
    return total


class _Turns(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, losses: Losses, count: int, *tensors: Tensor) -> Tensor:
        read = [tensor.detach().requires_grad_(tensor.requires_grad) for tensor in tensors[:count]]
        own = [*read, *tensors[count:]]
        wanted = [place for place, tensor in enumerate(own) if tensor.requires_grad]
        grads: list[Tensor | None] = [None] * len(own)
        total = torch.zeros((), device=own[0].device)
        with torch.enable_grad():
            for loss in losses(read):
                total += loss.detach()
                if loss.requires_grad:
                    learnt = [own[place] for place in wanted]
                    _add(grads, wanted, torch.autograd.grad(loss, learnt, allow_unused=True))
        ctx.grads = grads
        return total

    @staticmethod
    def backward(ctx: Any, *outputs: Tensor) -> tuple[Tensor | None, ...]:
        grads, ctx.grads = ctx.grads, None
        for place, grad in enumerate(grads):  # one at a time, as they may be as large as the model
            grads[place] = None if grad is None else grad * outputs[0]
        return None, None, *grads


def _add(grads: list[Tensor | None], places: list[int], found: tuple[Tensor | None, ...]) -> None:
    for place, grad in zip(places, found, strict=True):
        if grad is not None:
            before = grads[place]
            grads[place] = grad if before is None else before + grad  # not in place: two may be one tensor
