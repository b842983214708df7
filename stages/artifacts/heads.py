"""What a retriever may put behind its pooling: linear maps and layer norms, as sentence-transformers' modules."""

from collections.abc import Iterator
from pathlib import Path

import torch
from torch import Tensor, nn

from stages.artifacts.documents import read_json, write_json
from stages.artifacts.files import refuse_missing
from stages.artifacts.names import CONFIG, WEIGHTS
from stages.artifacts.refusal import Refusal
from stages.artifacts.tensors import load_tensors, save_tensors

ACTIVATIONS = {
    "torch.nn.modules.linear.Identity": nn.Identity,
    "torch.nn.modules.activation.Tanh": nn.Tanh,
    "torch.nn.modules.activation.ReLU": nn.ReLU,
}
NAMES = {kind: name for name, kind in ACTIVATIONS.items()}


class Dense(nn.Module):
    """A linear map and its activation: sentence-transformers' ``Dense``."""

    def __init__(self, inside: int, outside: int, bias: bool = True, activation: nn.Module | None = None):
        super().__init__()
        self.linear = nn.Linear(inside, outside, bias=bias)
        self.activation = activation or nn.Identity()

    def forward(self, vectors: Tensor) -> Tensor:
        """[B, inside] → [B, outside]."""
        out: Tensor = self.activation(self.linear(vectors))
        return out

    @property
    def width(self) -> int:
        """Dimensions of what comes out."""
        return self.linear.out_features

    def config(self) -> dict[str, object]:
        """What sentence-transformers wants to know."""
        sizes = {"in_features": self.linear.in_features, "out_features": self.linear.out_features}
        return sizes | {"bias": self.linear.bias is not None, "activation_function": NAMES[type(self.activation)]}


class LayerNorm(nn.Module):
    """A layer norm: sentence-transformers' ``LayerNorm``."""

    def __init__(self, width: int):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.width = width

    def forward(self, vectors: Tensor) -> Tensor:
        """[B, width] → [B, width]."""
        out: Tensor = self.norm(vectors)
        return out

    def config(self) -> dict[str, object]:
        """What sentence-transformers wants to know."""
        return {"dimension": self.width}


class Head(nn.Sequential):
    """Modules behind the pooling, in float32 whatever ran before them."""

    def __init__(self, *modules: Dense | LayerNorm):
        super().__init__(*modules)

    @property
    def width(self) -> int:
        """Dimensions of the vector."""
        return int(self[-1].width)  # type: ignore[arg-type]

    def forward(self, vectors: Tensor) -> Tensor:
        """[B, d] → [B, width] float32."""
        with torch.autocast(vectors.device.type, enabled=False):
            out: Tensor = super().forward(vectors.float())  # type: ignore[no-untyped-call]
        return out

    def parts(self) -> Iterator[tuple[str, Dense | LayerNorm]]:
        """The folders of the modules (``2_Dense``, …) and the modules."""
        for number, module in enumerate(self, 2):
            assert isinstance(module, Dense | LayerNorm)
            yield f"{number}_{type(module).__name__}", module

    def save(self, folder: Path) -> None:
        """Write every module below a model folder."""
        for name, module in self.parts():
            write_json(folder / name / CONFIG, module.config())
            save_tensors(folder / name / WEIGHTS, module.state_dict())


def new_head(inside: int, outside: int, norm: bool, seed: int) -> Head:
    """A linear map drawn from ``seed`` (normal, 0.02, as BERT's layers), and perhaps a layer norm behind it."""
    dense = Dense(inside, outside)
    nn.init.normal_(dense.linear.weight, std=0.02, generator=torch.Generator().manual_seed(seed))
    nn.init.zeros_(dense.linear.bias)
    return Head(dense, LayerNorm(outside)) if norm else Head(dense)


def load_head(folder: Path) -> Head | None:
    """The modules between pooling and normalisation that modules.json names; None where there are none.

    Raises:
        Refusal: a module's file is missing or damaged, or its activation is none that is known here.
    """
    path = folder / "modules.json"
    named = read_json(path) if path.is_file() else []
    kinds = [(module["type"].rsplit(".", 1)[-1], folder / module["path"]) for module in named]
    modules = [_loaded(kind, part) for kind, part in kinds if kind in ("Dense", "LayerNorm")]
    return Head(*modules) if modules else None


def _loaded(kind: str, folder: Path) -> Dense | LayerNorm:
    refuse_missing(folder, CONFIG, WEIGHTS)
    config = read_json(folder / CONFIG)
    module: Dense | LayerNorm
    if kind == "LayerNorm":
        module = LayerNorm(config["dimension"])
    else:
        activation = config.get("activation_function", "torch.nn.modules.activation.Tanh")
        if activation not in ACTIVATIONS:
            raise Refusal(f"{folder / CONFIG}: activation_function {activation} is unknown here")
        sizes = config["in_features"], config["out_features"], config.get("bias", True)
        module = Dense(*sizes, ACTIVATIONS[activation]())
    module.load_state_dict(load_tensors(folder / WEIGHTS))
    return module
