"""The largest logits against a loop over texts."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from stages.bottleneck import largest
from stages.bottleneck.largest import largest_logits

lengths = st.lists(st.integers(0, 6), min_size=1, max_size=8).filter(any)


def plainly(states: Tensor, weight: Tensor, bias: Tensor, lengths: list[int]) -> Tensor:
    texts = states.split(lengths)
    none = states.new_zeros(len(weight))
    return torch.stack([torch.nn.functional.linear(t, weight, bias).amax(0) if len(t) else none for t in texts])


@given(lengths=lengths, seed=st.integers(0, 1000), rows=st.sampled_from([1, 7, 1000]))
@settings(max_examples=30, deadline=None)
def test_values_and_gradients_are_those_of_a_loop(lengths: list[int], seed: int, rows: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    shapes = (sum(lengths), 5), (11, 5), (11,)
    given = [torch.randn(shape, generator=generator, dtype=torch.float64, requires_grad=True) for shape in shapes]
    slopes = torch.randn(len(lengths), 11, generator=generator, dtype=torch.float64)
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(largest.ROWS, "cpu", rows)
        found = largest_logits(*given, lengths)
        gradients = torch.autograd.grad((found * slopes).sum(), given)
    expected = plainly(*given, lengths)
    torch.testing.assert_close(found, expected)
    torch.testing.assert_close(gradients, torch.autograd.grad((expected * slopes).sum(), given))


def test_a_frozen_matrix_gets_no_gradient_and_half_precision_gives_single() -> None:
    torch.manual_seed(0)
    states, weight, bias = torch.randn(9, 4, requires_grad=True), torch.randn(6, 4), torch.zeros(6, requires_grad=True)
    with torch.autocast("cpu", torch.bfloat16):
        found = largest_logits(states, weight, bias, [4, 5])
    assert found.dtype == torch.float32
    torch.testing.assert_close(found, plainly(states, weight, bias, [4, 5]), rtol=0.02, atol=0.02)
    found.sum().backward()
    assert states.grad is not None
    assert states.grad.dtype == torch.float32
    assert weight.grad is None
    assert torch.equal(bias.grad, torch.full((6,), 2.0))  # type: ignore[arg-type]
