"""The one training loop. Whatever happens in a step is a function of the seed and the step's number.

So a run that was killed goes on from its last state and ends with the same bytes: there is no generator or
data loader whose state could be lost.
"""

import math
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from stages.training import checkpoint
from stages.training.curves import Curves
from stages.training.memory import give_back, keep
from stages.training.precision import Numbers, autocast
from stages.training.processes import Processes
from stages.training.progress import Progress


class Batch(Protocol):
    """A micro-batch on its way to the device.

    Attributes:
        counts: how many of each thing it holds (predicted positions by loss, queries, ``tokens``). The loop adds
            them over micro-batches and processes, so that losses are means over the whole batch.
    """

    counts: dict[str, int]

    def to(self, device: torch.device) -> "Batch":
        """The same batch on another device."""
        ...


SAVING = 0.02  # share of the time that states on disk may take: on a shared file system one may take long
TIDIED = 3  # steps between returns of memory: a return costs a little time, the holes between tensors memory
Observed = dict[str, tuple[Tensor, Tensor]]  # name → (sum, count), both scalars; logged as sum / count
Batches = Callable[[int], list[Any]]  # step → this process's micro-batches
Probe = Callable[[int], dict[str, float]]


@dataclass(frozen=True)
class Plan:
    """How long and how fast to train.

    Attributes:
        steps: optimiser steps in all.
        learning_rate: the peak of a linear warm-up and linear decay to zero.
        warmup: steps of linear warm-up.
        pause: steps after which to stop for now, with the state on disk; None: at the end.
        new_parts: first steps in which only the parts that the backbone did not have are trained.
        log_every: steps between rows of means.
        probe_every: steps between probes, besides the one after the last step; 0: none at all.
        clip: largest norm of the gradient.
        checkpoint: seconds between states on disk, at least; 0: one with every log.
    """

    steps: int
    learning_rate: float
    warmup: int = 0
    new_parts: int = 0
    weight_decay: float = 0.01
    clip: float = 1.0
    seed: int = 0
    precision: Numbers = "fp32"
    log_every: int = 10
    probe_every: int = 0
    checkpoint: float = 60.0
    pause: int | None = None

    def rate(self, step: int) -> float:
        """The learning rate of step 0, 1, …"""
        if step < self.warmup:
            return self.learning_rate * (step + 1) / self.warmup
        return self.learning_rate * (self.steps - step) / max(self.steps - self.warmup, 1)

    def logs(self, done: int) -> bool:
        """Whether means are logged after so many steps: now and then, and whenever there is a probe to go with them."""
        return done % self.log_every == 0 or self.probes(done)

    def pace(self, cost: float) -> float:
        """Seconds between states, where writing one took ``cost``; 0, with every log, stays 0."""
        return max(self.checkpoint, cost / SAVING) if self.checkpoint else 0.0

    def probes(self, done: int) -> bool:
        """Whether the probe is asked after so many steps."""
        return self.probe_every > 0 and (done % self.probe_every == 0 or done == self.steps)


@dataclass
class Report:
    """What a run has shown: one row of logged values per logging step, its numbers and its speed."""

    history: list[dict[str, Any]] = field(default_factory=list)
    precision: Numbers = "fp32"
    seconds: float = 0.0
    tokens: float = 0.0

    @property
    def speed(self) -> dict[str, float]:
        """Real tokens a second through the model, and seconds: optimiser included, probes and checkpoints not."""
        return {"tokens_per_second": self.tokens / self.seconds if self.seconds else 0.0, "seconds": self.seconds}

    def last(self, name: str) -> float:
        """The last logged value of one name."""
        return float(next(row[name] for row in reversed(self.history) if name in row))


def train(
    model: nn.Module,
    batches: Batches,
    plan: Plan,
    processes: Processes,
    scratch: Path,
    curves: Curves | None = None,
    probe: Probe | None = None,
    what: str = "train",
) -> Report:
    """Train ``model`` in place.

    Args:
        model: ``model(batch, totals)`` gives this micro-batch's share of the loss (shares add up to the loss over
            micro-batches and processes) and what was observed. ``model.new`` may name the parameters that
            train alone in the first ``plan.new_parts`` steps.
        batches: the micro-batches of a step, for this process; called ahead of time in another thread.
        scratch: a folder for the state of this very run; an interrupted run found there is continued.
    """
    keep()
    model.to(processes.device).train()
    optimiser = _optimiser(model, plan, processes.device)
    start, history = checkpoint.restore(scratch, model, optimiser)
    if len(processes.agreed([str(start)])) > 1:
        raise OSError(f"{scratch}: processes find different states there; ISTHMUS_SCRATCH must be one folder for all")
    report, curves = Report(history, plan.precision), curves or Curves(None)
    for row in history:
        curves.log(row["step"], {name: value for name, value in row.items() if name != "step"})
    window: Observed = {}
    saved, cost, end = time.monotonic(), 0.0, min(plan.pause or plan.steps, plan.steps)
    with Ahead(batches, start, end) as ahead, Progress(what, plan.steps, "steps", start) as bar:
        for step in range(start, end):
            began, parts, done = time.monotonic(), ahead.take(), step + 1
            if step in (start, plan.new_parts):
                _freeze(model, step < plan.new_parts)
            _step(model, optimiser, parts, step, plan, processes, window)
            if step % TIDIED == 0:
                give_back()
            report.tokens += sum(part.counts.get("tokens", 0) for part in parts)
            row = _means(window, processes) if plan.logs(done) or done == end else {}
            report.seconds += time.monotonic() - began
            if row:
                if probe and plan.probes(done):
                    row |= _probe(probe, done, model)
                curves.log(done, row)
                report.history.append({"step": done, **row})
                # only here, where the window of observations is empty: a state then needs none of it
                due = done == end or time.monotonic() - saved >= plan.pace(cost)
                if processes.first and done < plan.steps and due:
                    began = time.monotonic()
                    checkpoint.save(scratch, done, model, optimiser, report.history)
                    saved = time.monotonic()
                    cost = saved - began
            bar.advance(1, f"loss {report.history[-1]['loss']:.3f}" if report.history else "")
    curves.close()
    return report


class Ahead:
    """Makes the next step's micro-batches in a thread while this step computes."""

    def __init__(self, batches: Batches, start: int, end: int):
        self.batches, self.next, self.end = batches, start, end
        self.pool = ThreadPoolExecutor(1)
        self.coming = self.pool.submit(batches, start) if start < end else None

    def take(self) -> list[Any]:
        """The micro-batches of the next step, in order."""
        assert self.coming is not None, "no step is left"
        parts: list[Any] = self.coming.result()
        self.next += 1
        self.coming = self.pool.submit(self.batches, self.next) if self.next < self.end else None
        return parts

    def __enter__(self) -> "Ahead":
        return self

    def __exit__(self, *_: object) -> None:
        self.pool.shutdown(cancel_futures=True)


def _optimiser(model: nn.Module, plan: Plan, device: torch.device) -> torch.optim.AdamW:
    matrices = [parameter for parameter in model.parameters() if parameter.ndim > 1]
    vectors = [parameter for parameter in model.parameters() if parameter.ndim <= 1]
    groups = [{"params": matrices, "weight_decay": plan.weight_decay}, {"params": vectors, "weight_decay": 0.0}]
    return torch.optim.AdamW([group for group in groups if group["params"]], lr=plan.learning_rate, fused=True)


def _step(
    model: nn.Module,
    optimiser: torch.optim.Optimizer,
    parts: list[Any],
    step: int,
    plan: Plan,
    processes: Processes,
    window: Observed,
) -> None:
    torch.manual_seed((plan.seed * 1_000_003 + step) * 1009 + processes.rank)  # dropout, whatever came before
    totals = _totals(parts, processes)
    for part in parts:
        with autocast(processes.device, plan.precision):
            loss, observed = model(part.to(processes.device), totals)
        loss.backward()
        _observe(window, observed | {"loss": (loss.detach(), torch.tensor(1.0 / len(parts) / processes.world))})
    nn.utils.clip_grad_norm_(_add_gradients(model, processes), plan.clip)
    for group in optimiser.param_groups:
        group["lr"] = plan.rate(step)
    optimiser.step()
    optimiser.zero_grad(set_to_none=True)


def _freeze(model: nn.Module, old: bool) -> None:
    """Let all of the model learn, or only what is new in it, if anything is."""
    new: set[str] = getattr(model, "new", set())
    for name, parameter in model.named_parameters():
        parameter.requires_grad_(not (old and new) or name in new)


def _totals(parts: list[Any], processes: Processes) -> dict[str, int]:
    names = sorted(parts[0].counts)
    here = [sum(part.counts[name] for part in parts) for name in names]
    if processes.world > 1:  # alone, no need to wait for the device
        here = processes.total(torch.tensor(here, dtype=torch.int64, device=processes.device)).tolist()
    return dict(zip(names, here, strict=True))


def _add_gradients(model: nn.Module, processes: Processes) -> list[nn.Parameter]:
    """Sum gradients over processes (each holds its share of one loss) and return the parameters that have one."""
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    if processes.world > 1:
        used = torch.tensor([parameter.grad is not None for parameter in parameters], device=processes.device)
        used = processes.total(used.int())  # a text may be absent from one process's batch, not from another's
        parameters = [parameter for parameter, users in zip(parameters, used.tolist(), strict=True) if users]
        grads = [torch.zeros_like(p) if p.grad is None else p.grad for p in parameters]
        flat = processes.total(torch.cat([grad.flatten() for grad in grads]))
        for parameter, grad in zip(parameters, torch.split(flat, [p.numel() for p in parameters]), strict=True):
            parameter.grad = grad.view_as(parameter)
    return [parameter for parameter in parameters if parameter.grad is not None]


def _observe(window: Observed, observed: Observed) -> None:
    for name, (value, count) in observed.items():
        seen = window.get(name, (torch.zeros(()), torch.zeros(())))
        window[name] = (seen[0].to(value.device) + value.detach(), seen[1].to(count.device) + count)


def _means(window: Observed, processes: Processes) -> dict[str, float]:
    names = processes.agreed(window)  # a text may be absent from one process's batches, not from another's
    nothing = torch.zeros(()), torch.zeros(())
    pairs = torch.stack([torch.stack([v.double().cpu() for v in window.get(name, nothing)]) for name in names])
    totals = processes.total(pairs.to(processes.device, torch.float32)).double().cpu()
    window.clear()
    means = {name: (value / count).item() for name, (value, count) in zip(names, totals, strict=True) if count}
    broken = [name for name, mean in means.items() if not math.isfinite(mean)]
    if broken:
        raise FloatingPointError(f"{broken[0]} is {means[broken[0]]}: lower the learning rate or train in fp32")
    return means


def _probe(probe: Probe, step: int, model: nn.Module) -> dict[str, float]:
    model.eval()
    with torch.no_grad():
        values = probe(step)
    model.train()
    return values
