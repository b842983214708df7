"""State of a training run on disk: safetensors and JSON, complete or absent."""

import json
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from torch.optim import Optimizer

KEPT = 2  # the newest, and one to fall back on
MARK = "complete"


def save(folder: Path, step: int, model: nn.Module, optimiser: Optimizer, history: list[dict[str, Any]]) -> None:
    """Write the state after ``step`` steps, then forget all but the newest `KEPT` states."""
    target = folder / f"step-{step:09d}"
    target.mkdir(parents=True, exist_ok=True)
    save_file(
        {name: value.contiguous() for name, value in tensors(model, optimiser).items()}, target / "state.safetensors"
    )
    (target / "history.json").write_text(json.dumps(history), encoding="utf-8")
    (target / MARK).touch()  # last: a folder without it is a write that was cut short
    for old in states(folder)[:-KEPT]:
        for file in old.iterdir():
            file.unlink()
        old.rmdir()


def restore(folder: Path, model: nn.Module, optimiser: Optimizer) -> tuple[int, list[dict[str, Any]]]:
    """Load the newest readable state into model and optimiser.

    Returns:
        The number of steps done and the history; (0, []) where there is no state.
    """
    for state in reversed(states(folder)):
        try:
            saved = load_file(state / "state.safetensors")
            history = json.loads((state / "history.json").read_text(encoding="utf-8"))
        except (OSError, ValueError, SafetensorError):
            continue  # damaged: fall back to the one before
        _put(saved, model, optimiser)
        return int(state.name.removeprefix("step-")), history
    return 0, []


def states(folder: Path) -> list[Path]:
    """The complete states, oldest first."""
    return sorted(mark.parent for mark in folder.glob(f"step-*/{MARK}"))


def tensors(model: nn.Module, optimiser: Optimizer) -> dict[str, Tensor]:
    """Every parameter, buffer and optimiser moment by name."""
    found: dict[str, Tensor] = {f"model/{name}": value.detach() for name, value in model.named_parameters()}
    found |= {f"buffer/{name}": value for name, value in model.named_buffers()}
    for name, parameter in model.named_parameters():
        for key, value in optimiser.state.get(parameter, {}).items():
            found[f"optimiser/{name}/{key}"] = value
    return found


@torch.no_grad()
def _put(saved: dict[str, Tensor], model: nn.Module, optimiser: Optimizer) -> None:
    parameters = dict(model.named_parameters())
    buffers = dict(model.named_buffers())
    for key, value in saved.items():
        kind, _, name = key.partition("/")
        if kind == "model":
            parameters[name].copy_(value)
        elif kind == "buffer":
            buffers[name].copy_(value)
        else:
            owner, _, moment = name.rpartition("/")
            parameter = parameters[owner]
            optimiser.state[parameter][moment] = value.to(parameter.device)
