"""How alike the states of a text are to one vector, position by position."""

from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor


class Likeness:
    """The mean cosine of states with a vector of their text, by position, over texts that come in batches."""

    def __init__(self, longest: int):
        self.sums, self.counts = np.zeros((2, longest))

    def add(self, states: Tensor, vectors: Tensor, lengths: Tensor) -> None:
        """Count [b, L, d] states, the first [b] ``lengths`` of each text, and their texts' [b, d] vectors."""
        cosines = torch.cosine_similarity(states.float(), vectors.float()[:, None], dim=-1)
        real = torch.arange(cosines.shape[1], device=lengths.device) < lengths[:, None]
        self.sums[: real.shape[1]] += (cosines.double() * real).sum(0).cpu().numpy()
        self.counts[: real.shape[1]] += real.sum(0).cpu().numpy()

    def means(self) -> dict[int, float]:
        """Position → mean cosine, of the positions that some text has."""
        return {int(place): float(self.sums[place] / self.counts[place]) for place in np.flatnonzero(self.counts)}


def by_position(longest: int, columns: Mapping[str, Likeness]) -> list[dict[str, float]]:
    """A row for each of ``longest`` positions, with a mean in every column that has one there."""
    means = {name: column.means() for name, column in columns.items()}
    return [
        {"position": place, **{name: found[place] for name, found in means.items() if place in found}}
        for place in range(longest)
    ]
