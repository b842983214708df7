"""Arrays that a long stage keeps piece by piece, so that a killed run does only what is missing."""

import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from stages.artifacts.files import whole


@dataclass(frozen=True)
class Shards:
    """Numbered arrays in a folder, each with what making it took."""

    folder: Path

    def path(self, number: int) -> Path:
        """Where a shard is, or will be."""
        return self.folder / f"{number:08d}.npy"

    def has(self, number: int) -> bool:
        """Whether a shard is complete."""
        return self.path(number).is_file()

    def save(self, number: int, array: np.ndarray, tokens: int, seconds: float) -> None:
        """Write a shard, whole or not at all."""
        with whole(self.path(number).with_suffix(".json")) as partial:
            partial.write_text(json.dumps({"tokens": tokens, "seconds": seconds}), encoding="utf-8")
        with whole(self.path(number)) as partial, partial.open("wb") as file:
            np.save(file, array)

    def load(self, number: int) -> np.ndarray:
        """A shard, mapped rather than read."""
        array: np.ndarray = np.load(self.path(number), mmap_mode="r")
        return array

    def spent(self) -> tuple[int, float]:
        """Tokens and seconds of all shards together."""
        notes = [json.loads(path.read_text(encoding="utf-8")) for path in sorted(self.folder.glob("*.json"))]
        return sum(note["tokens"] for note in notes), sum(note["seconds"] for note in notes)
