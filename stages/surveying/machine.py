"""Facts of this machine: cores, memory, disk, accelerators."""

import os
import shutil
from dataclasses import dataclass
from pathlib import Path

LIMITS = (Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"))


@dataclass(frozen=True)
class Machine:
    """What there is to use.

    Attributes:
        cores: this process may run on.
        memory: bytes that are free for programs, a container's limit included.
        disk: bytes free where the project lies.
        gpus: (name, bytes of memory) of every GPU that torch can use.
        bf16: whether the CPU is faster in bfloat16.
    """

    cores: int
    memory: int
    disk: int
    gpus: tuple[tuple[str, int], ...]
    bf16: bool


def survey(folder: Path) -> Machine:
    """Look at the machine, and at the disk of a folder."""
    return Machine(cores(), memory(), shutil.disk_usage(folder).free, gpus(), bf16())


def cores() -> int:
    """Cores that this process may run on."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def memory() -> int:
    """Bytes that programs may still take: what is available, or what a container's limit leaves."""
    import psutil

    limits = [int(text) for text in (_text(path) for path in LIMITS) if text.isdigit()]
    return min([int(psutil.virtual_memory().available), *limits])


def gpus() -> tuple[tuple[str, int], ...]:
    """(name, bytes of memory) of every GPU that torch can use."""
    import torch

    found = [torch.cuda.get_device_properties(number) for number in range(torch.cuda.device_count())]
    return tuple((str(gpu.name), int(gpu.total_memory)) for gpu in found)


def bf16() -> bool:
    """Whether the CPU multiplies matrices faster in bfloat16."""
    from stages.training.precision import cpu_gains

    return cpu_gains()


def size(count: float) -> str:
    """Bytes as people write them: ``3.4 GB``."""
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1000:
            return f"{count:.0f} {unit}" if unit in "B kB" else f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:,.1f} TB"


def _text(path: Path) -> str:
    try:
        return path.read_text("utf-8").strip()
    except OSError:
        return ""
