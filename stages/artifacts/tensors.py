"""Named tensors on disk: safetensors, never pickle."""

from collections.abc import Mapping
from pathlib import Path

from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from stages.artifacts.refusal import Refusal


def save_tensors(path: Path, tensors: Mapping[str, Tensor]) -> None:
    """Write tensors, wherever they are and whatever needs their gradient."""
    save_file({name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}, path)


def load_tensors(path: Path) -> dict[str, Tensor]:
    """The tensors of a file, on the CPU.

    Raises:
        Refusal: the file is damaged.
    """
    try:
        return load_file(path)
    except SafetensorError as error:
        raise Refusal(f"{path}: not safetensors: {error}") from error
