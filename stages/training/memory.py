"""Give freed memory back to the operating system."""

import ctypes
import ctypes.util


def give_back() -> None:
    """Return the holes between live tensors to the system.

    Batches differ in shape, so glibc's heap of a long CPU run is soon more hole than tensor. Elsewhere nothing is done.
    """
    name = ctypes.util.find_library("c")
    trim = getattr(ctypes.CDLL(name), "malloc_trim", None) if name else None
    if trim is not None:
        trim(0)
