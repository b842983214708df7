"""How glibc treats freed memory: kept while a run goes on, holes given back now and then."""

import ctypes
import ctypes.util
from functools import cache
from typing import Any

TRIM_THRESHOLD, MMAP_MAX = -1, -4  # as malloc.h numbers them
MOST = 2**31 - 1


def keep() -> None:
    """Use freed memory again instead of returning it at once; elsewhere than with glibc nothing is done.

    Large tensors would be mapped and unmapped at every use, and the system clears each of their pages: 12 % of the
    CPU time of a pre-training step, measured on a CPU.
    """
    mallopt = _function("mallopt")
    if mallopt is not None:
        mallopt(MMAP_MAX, 0)
        mallopt(TRIM_THRESHOLD, MOST)


def give_back() -> None:
    """Return the holes between live tensors to the system.

    Batches differ in shape, so glibc's heap of a long CPU run is soon more hole than tensor. Elsewhere nothing is done.
    """
    trim = _function("malloc_trim")
    if trim is not None:
        trim(0)


@cache
def _function(name: str) -> Any:
    library = ctypes.util.find_library("c")
    return getattr(ctypes.CDLL(library), name, None) if library else None
