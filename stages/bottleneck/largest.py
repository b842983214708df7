"""The largest logit of every piece over the positions of a text, without keeping what is not the largest."""

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

ROWS = {"cpu": 1024, "cuda": 8192}  # positions whose logits are held at once


def largest_logits(states: Tensor, weight: Tensor, bias: Tensor, lengths: list[int]) -> Tensor:
    """max over a text's positions of h Wᵀ + b: [n, d] positions of all texts in a row, [V, d], [V] → [texts, V].

    Float32 at least. ``lengths`` are the positions of every text; one without any has logits 0, and no gradient.
    """
    found: Tensor = LargestLogits.apply(states, weight, bias, lengths)  # type: ignore[no-untyped-call]
    return found


class LargestLogits(torch.autograd.Function):
    """What `largest_logits` is.

    Only the largest of every piece has a gradient, so what is kept for the backward pass is where it stood: two bytes a
    piece and text instead of the [L, V] logits, and no second forward pass.
    """

    @staticmethod
    def forward(ctx: Any, states: Tensor, weight: Tensor, bias: Tensor, lengths: list[int]) -> Tensor:
        """Texts in blocks: their logits, and where in a text each piece's largest stands."""
        kind = torch.bfloat16 if torch.is_autocast_enabled(states.device.type) else states.dtype
        matrix, offset, rows = (part.detach().to(kind) for part in (weight, bias, states))
        largest = rows.new_zeros(len(lengths), len(matrix))
        places = torch.zeros_like(largest, dtype=torch.int16)
        for texts in _blocks(lengths, ROWS[states.device.type]):
            logits = matrix @ rows[texts[0][1] : texts[-1][2]].T  # pieces first: a piece's positions lie side by side
            for text, first, last in texts:
                found = logits[:, first - texts[0][1] : last - texts[0][1]].max(1)
                largest[text], places[text] = found.values + offset, found.indices
        ctx.save_for_backward(rows, matrix, places)
        ctx.lengths, ctx.kinds = lengths, (states.dtype, weight.dtype, bias.dtype)
        return largest.float() if kind == torch.bfloat16 else largest

    @staticmethod
    def backward(ctx: Any, *outputs: Tensor) -> tuple[Tensor | None, ...]:
        """Every slope goes to the position that was largest."""
        rows, matrix, places = ctx.saved_tensors
        slopes = outputs[0]
        of_rows, seen = torch.zeros_like(rows), torch.zeros(len(slopes), 1, dtype=slopes.dtype, device=slopes.device)
        of_matrix = slopes.new_zeros(matrix.shape) if ctx.needs_input_grad[1] else None
        for texts in _blocks(ctx.lengths, ROWS[rows.device.type]):
            start, stop = texts[0][1], texts[-1][2]
            spread = slopes.new_zeros(len(matrix), stop - start)
            for text, first, last in texts:
                at = places[text, :, None].long()
                spread[:, first - start : last - start].scatter_(1, at, slopes[text, :, None])
                seen[text] = 1
            spread = spread.to(rows.dtype)
            torch.mm(spread.T, matrix, out=of_rows[start:stop])
            if of_matrix is not None:
                of_matrix.add_(spread @ rows[start:stop])
        given = of_rows, of_matrix, (slopes * seen).sum(0)
        return *(None if one is None else one.to(kind) for one, kind in zip(given, ctx.kinds, strict=True)), None


def _blocks(lengths: list[int], rows: int) -> Iterator[list[tuple[int, int, int]]]:
    """(text, its first position, one past its last), texts without positions left out, together while they fit."""
    block: list[tuple[int, int, int]] = []
    start = 0
    for text, length in enumerate(lengths):
        if block and start + length - block[0][1] > rows:
            yield block
            block = []
        if length:
            block.append((text, start, start + length))
        start += length
    if block:
        yield block
