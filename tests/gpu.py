"""A GPU that is none: tensors live on the CPU and bear a label, and whatever a real one would refuse is refused.

Errors of placement are those that a program meets first on a GPU: a tensor that was left behind, numpy on a tensor
that is not in memory. They need no GPU to be found. Kernels, speed and memory do.
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.multiprocessing.reductions import StorageWeakRef
from torch.overrides import TorchFunctionMode
from torch.utils import checkpoint
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map_only

GPU = torch.device("cuda", 0)
CPU = torch.device("cpu")
ACROSS = {"copy_", "_has_compatible_shallow_copy_type"}  # may meet both devices, and their results are where they were
BY_PLACES = {"index", "index_put", "index_put_", "_index_put_impl_", "_unsafe_index"}  # their second: may be on the CPU
NO_SCALARS = {  # of the CPU, which others take beside tensors of the GPU
    "cat",
    "stack",
    "mm",
    "bmm",
    "addmm",
    "embedding",
    "gather",
    "index_select",
    "scatter",
}
WHERE, ON_GPU = Tensor.device.__get__, Tensor.is_cuda.__get__  # type: ignore[attr-defined]
IN_MEMORY = {Tensor.numpy, Tensor.__array__}


class Labels:
    """Which storages are on the GPU. A weak reference keeps an address from being given to another storage."""

    def __init__(self) -> None:
        self.held: dict[int, StorageWeakRef] = {}

    def __contains__(self, tensor: Tensor) -> bool:
        return tensor.untyped_storage()._cdata in self.held

    def add(self, tensor: Tensor) -> None:
        """Put a tensor, and all that share its storage, on the GPU."""
        storage = tensor.untyped_storage()
        self.held[storage._cdata] = StorageWeakRef(storage)


def tensors(tree: Any) -> list[Tensor]:
    """All tensors in arguments or results."""
    return [leaf for leaf in tree_leaves(tree) if isinstance(leaf, Tensor)]


def on_gpu(device: torch.device | str | None) -> bool:
    """Whether a device by name, or as an object, is the GPU."""
    return device is not None and torch.device(device).type == "cuda"


class Kernels(TorchDispatchMode):
    """Every operation, of backward passes too: all of its tensors on one device, and its results there."""

    def __init__(self, labels: Labels):
        super().__init__()
        self.labels = labels

    def __torch_dispatch__(
        self, func: Any, types: Iterable[type], args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        name, given = func.overloadpacket.__name__, (args, kwargs or {})
        among = tensors((args[0], *args[2:]) if name in BY_PLACES else given)
        here = [tensor for tensor in among if tensor in self.labels]
        left = [tensor for tensor in among if tensor not in self.labels]
        if here and name not in ACROSS and any(tensor.ndim or name in NO_SCALARS for tensor in left):
            raise RuntimeError(f"{name}: expected all tensors to be on the same device, found cuda:0 and cpu")
        if name in BY_PLACES and not here and any(place in self.labels for place in tensors(given)):
            raise RuntimeError(f"{name}: indices should be either on cpu or on the same device as the indexed tensor")
        made = func(*args, **(kwargs or {}))
        if here and name not in ACROSS:
            for tensor in tensors(made):
                self.labels.add(tensor)
        return made


class Calls(TorchFunctionMode):
    """Every call that names a device, or asks where a tensor is."""

    def __init__(self, labels: Labels):
        super().__init__()
        self.labels = labels

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if func == WHERE:
            return GPU if args[0] in self.labels else func(*args)
        if func == ON_GPU:
            return args[0] in self.labels
        if func in IN_MEMORY and args[0] in self.labels:
            raise TypeError("can't convert cuda:0 device type tensor to numpy: copy the tensor to host memory first")
        if func is Tensor.to:
            return self.moved(func, args, kwargs)
        if func is Tensor.cpu:
            return self.placed(args[0], args[0], False)
        if not on_gpu(kwargs.get("device")):
            return func(*args, **kwargs)
        made = func(*args, **kwargs | {"device": CPU})
        self.labels.add(made)
        return made

    def moved(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Tensor:
        """What ``Tensor.to`` gives: a device by name, by object, or that of another tensor."""
        tensor, there = args[0], []
        for value in (*args[1:], *kwargs.values()):
            if isinstance(value, Tensor):
                there.append(value in self.labels)
            elif isinstance(value, torch.device | str):
                there.append(on_gpu(value))
        lowered = partial(tree_map_only, (torch.device, str), lambda device: CPU if on_gpu(device) else device)
        made: Tensor = func(tensor, *lowered(args[1:]), **lowered(kwargs))
        return self.placed(tensor, made, there[0] if there else tensor in self.labels)

    def placed(self, before: Tensor, made: Tensor, there: bool) -> Tensor:
        """``made`` from ``before`` on the device that was asked for, in a storage of its own if that is another."""
        if made.untyped_storage()._cdata == before.untyped_storage()._cdata and there != (before in self.labels):
            made = made.clone()
        if there:
            self.labels.add(made)
        else:
            self.labels.held.pop(made.untyped_storage()._cdata, None)
        return made


def _on_cpu(call: Callable[..., Any]) -> Callable[..., Any]:
    """The same call, which takes ``"cuda"`` for ``"cpu"``."""
    return lambda kind, *args, **kwargs: call("cpu" if kind == "cuda" else kind, *args, **kwargs)


@contextmanager
def pretended(monkeypatch: pytest.MonkeyPatch) -> Iterator[Labels]:
    """A machine whose torch sees one GPU, which multiplies in bfloat16 too."""
    with monkeypatch.context() as patch:
        patch.setattr(torch.cuda, "is_available", lambda: True)
        patch.setattr(torch.cuda, "is_bf16_supported", lambda including_emulation=True: True)
        patch.setattr(torch, "autocast", _on_cpu(torch.autocast))
        patch.setattr(torch, "is_autocast_enabled", _on_cpu(torch.is_autocast_enabled))
        labels = Labels()
        calls, backward = Calls(labels), torch.autograd._engine_run_backward

        def under_calls(*args: Any, **kwargs: Any) -> Any:
            with calls:  # for what is computed again on the way back
                return backward(*args, **kwargs)

        patch.setattr(torch.autograd, "_engine_run_backward", under_calls)

        def random_states(*args: Any) -> tuple[list[int], list[Tensor]]:
            assert any(tensor in labels for tensor in tensors(args)), "no GPU whose random state is kept"
            return [], []

        patch.setattr(torch.cuda, "_initialized", True)
        patch.setattr(checkpoint.DefaultDeviceType, "_default_device_type", "cuda")
        patch.setattr(checkpoint, "get_device_states", random_states)
        # checkpointing looks at what was saved outside of any mode, where no tensor has a label
        patch.setitem(checkpoint._allowed_determinism_checks_to_fns, "default", lambda tensor: tensor.shape)
        with Kernels(labels), calls:
            yield labels
