"""Cosines by position, against a loop over texts."""

from collections import defaultdict

import numpy as np
import pytest
import torch

from stages.embedding.positions import Likeness, by_position


def test_a_mean_is_over_the_texts_that_reach_a_position() -> None:
    torch.manual_seed(0)
    column, expected = Likeness(9), defaultdict(list)
    for lengths in ([3, 5], [1], [4, 2, 6]):
        states, vectors = torch.randn(len(lengths), max(lengths), 8), torch.randn(len(lengths), 8)
        column.add(states, vectors, torch.tensor(lengths))
        for text, vector, length in zip(states, vectors, lengths, strict=True):
            for place in range(length):
                cosine = text[place] @ vector / text[place].norm() / vector.norm()
                expected[place].append(float(cosine))
    assert column.means() == pytest.approx({place: np.mean(some) for place, some in expected.items()}, abs=1e-6)
    rows = by_position(9, {"one": column, "none": Likeness(9)})
    assert [row["position"] for row in rows] == list(range(9))
    assert [set(row) - {"position"} for row in rows] == [{"one"}] * 6 + [set()] * 3
