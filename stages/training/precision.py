"""In which numbers matrix products run: those that the device multiplies faster, unless one is named."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal, TypeVar

import torch
import typer
from torch import nn

Numbers = Literal["bf16", "fp32"]
Model = TypeVar("Model", bound=nn.Module)
Precision = Annotated[
    Literal["auto", "bf16", "fp32"],
    typer.Option(help="Numbers of matrix products; auto: bf16 where the hardware is faster in it, else fp32."),
]


def resolved(precision: Literal["auto", "bf16", "fp32"]) -> Numbers:
    """What ``auto`` stands for on this machine; a precision that is named stays."""
    if precision != "auto":
        return precision
    gpu = torch.cuda.is_available()
    gains = torch.cuda.is_bf16_supported(including_emulation=False) if gpu else cpu_gains()
    return "bf16" if gains else "fp32"


def cpu_gains(found: Mapping[str, Any] | None = None) -> bool:
    """Whether the CPU multiplies bfloat16 matrices faster than float32 ones.

    AMX and ARM's instructions do, and AVX-512's on AMD's processors (1.8 times as fast in training). Intel's have half
    as many units for AVX-512's: without AMX, which a virtual machine may hide, bfloat16 takes twice as long.

    Args:
        found: what a processor is and can do, as torch says it; default: this one.
    """
    found = torch.cpu.get_capabilities() if found is None else found
    units = found.get("avx512_bf16", False) and "Intel" not in str(found.get("cpu_name", ""))
    return bool(found.get("amx_bf16") or found.get("bf16") or units)


def autocast(device: torch.device, precision: Numbers) -> torch.autocast:
    """The context in which matrix products run in ``bf16``, or untouched in ``fp32``."""
    return torch.autocast(device.type, torch.bfloat16, enabled=precision == "bf16")


def lowered(model: Model, precision: Numbers, device: torch.device) -> Model:
    """A model that will not be trained any more, itself, with its products in the numbers asked for.

    In ``bf16`` they run as under training's `autocast`, and what stands between them stays in float32: where vectors
    are alike (mean cosine .9999), bfloat16 sums would be off by half of what tells texts apart, not by 4 %.
    """
    if precision == "bf16":
        for module in model.modules():
            if type(module) is nn.Linear:
                module.to(torch.bfloat16)  # once: autocast would at every call
        model.forward = autocast(device, precision)(model.forward)
    return model
