"""In which numbers matrix products run: those that the device multiplies faster, unless one is named."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal

import torch
import typer

Numbers = Literal["bf16", "fp32"]
Precision = Annotated[
    Literal["auto", "bf16", "fp32"],
    typer.Option(help="Numbers of matrix products; auto: bf16 where the hardware is faster in it, else fp32."),
]


def resolved(precision: Literal["auto", "bf16", "fp32"]) -> Numbers:
    """What ``auto`` stands for on this machine; a precision that is named stays."""
    if precision != "auto":
        return precision
    return "bf16" if gpu_gains() or (not torch.cuda.is_available() and cpu_gains()) else "fp32"


def gpu_gains() -> bool:
    """Whether there is a GPU with bfloat16 in hardware (A100 or newer)."""
    return torch.cuda.is_available() and torch.cuda.is_bf16_supported(including_emulation=False)


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


def weights_type(precision: Numbers) -> torch.dtype:
    """What the weights of a model that is only read from are cast to, once: autocast would at every call."""
    return torch.bfloat16 if precision == "bf16" else torch.float32


def autocast(device: torch.device, precision: Numbers) -> torch.autocast:
    """The context in which matrix products run in ``bf16``, or untouched in ``fp32``."""
    return torch.autocast(device.type, torch.bfloat16, enabled=precision == "bf16")
