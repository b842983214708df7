"""Lots that depend on a text and a purpose, and on nothing else."""

from stages.artifacts.identity import digest


def lot(text: str, purpose: str) -> float:
    """A number in [0, 1) that depends on the text and on what is decided by it, so that decisions are independent."""
    return digest(f"{purpose}\n{text}") / 2**64
