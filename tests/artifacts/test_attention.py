"""Our attention against torch's fused one."""

import pytest
import torch
from torch import nn

from stages.artifacts.attention import attend


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("mask", ["none", "bool", "additive"])
def test_agrees_with_the_fused_kernel_forwards_and_backwards(dtype: torch.dtype, mask: str) -> None:
    generator = torch.Generator().manual_seed(1)
    query, key, value = (torch.randn(3, 2, 7, 8, generator=generator).to(dtype).requires_grad_() for _ in range(3))
    seen = torch.arange(7)[None, None, None, :] < torch.tensor([7, 3, 1])[:, None, None, None]
    given = {"none": None, "bool": seen, "additive": torch.zeros(seen.shape, dtype=dtype).masked_fill(~seen, -1e9)}[
        mask
    ]
    module = nn.Module()
    module.is_causal = False  # type: ignore[assignment]
    found, _ = attend(module, query, key, value, given)
    expected = nn.functional.scaled_dot_product_attention(
        *(t.double() for t in (query, key, value)), attn_mask=None if mask == "none" else seen
    )
    pull = torch.randn(found.shape, generator=generator).to(dtype)
    near = {"atol": 0.04, "rtol": 0.03} if dtype == torch.bfloat16 else {"atol": 1e-5, "rtol": 1e-4}
    torch.testing.assert_close(found.double(), expected.transpose(1, 2), **near)
    mine = torch.autograd.grad(found, (query, key, value), pull)
    theirs = torch.autograd.grad(expected.transpose(1, 2), (query, key, value), pull.double())
    for ours, other in zip(mine, theirs, strict=True):
        torch.testing.assert_close(ours, other, **near)
