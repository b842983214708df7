"""Who runs: one process on a CPU or a GPU, or one of many under ``accelerate launch`` or torchrun."""

import os
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import Tensor

PATIENCE = timedelta(days=1)  # the first process may search a corpus, or train a generator, while its peers wait


@dataclass(frozen=True)
class Processes:
    """This process among its peers, and the device that it computes on."""

    rank: int
    world: int
    device: torch.device

    @property
    def first(self) -> bool:
        """Whether this is the process that writes files and speaks."""
        return self.rank == 0

    def total(self, values: Tensor) -> Tensor:
        """Elementwise sum of a tensor over all processes, on each of them."""
        if self.world > 1:
            values = values.clone()
            dist.all_reduce(values)
        return values

    def gathered(self, rows: Tensor) -> Tensor:
        """[n, d] of every process stacked to [world · n, d] in rank order, with gradient to this one's rows.

        Every process must hold the same n.
        """
        if self.world == 1:
            return rows
        parts = [torch.empty_like(rows) for _ in range(self.world)]
        dist.all_gather(parts, rows.detach().contiguous())
        parts[self.rank] = rows
        return torch.cat(parts)

    def agreed(self, names: Iterable[str]) -> list[str]:
        """The names that any process has, in order, on each of them."""
        here = sorted(names)
        if self.world == 1:
            return here
        held: list[list[str]] = [[] for _ in range(self.world)]
        dist.all_gather_object(held, here)
        return sorted({name for some in held for name in some})

    def wait(self) -> None:
        """Return when every process has come here."""
        if self.world > 1:
            dist.barrier()


def join() -> Processes:
    """Join the peers that a launcher announced in the environment; alone where there are none."""
    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        from accelerate import PartialState  # costs seconds: only where there are peers

        state = PartialState(cpu=not torch.cuda.is_available(), timeout=PATIENCE)
        return Processes(state.process_index, state.num_processes, state.device)
    return Processes(0, 1, torch.device("cuda" if torch.cuda.is_available() else "cpu"))
