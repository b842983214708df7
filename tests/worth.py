"""Values tables of made queries."""

from pathlib import Path

import numpy as np
import pytest

from stages.artifacts.tables import Values

MEASURES = ("RR@10", "nDCG@10")


def write(path: Path, worth: np.ndarray, queries: str = "q", measures: tuple[str, ...] = MEASURES) -> Path:
    """A Values table of [queries, measures]."""
    names = [f"{queries}{i}" for i in range(len(worth))]
    columns = {"query_id": names * len(measures), "measure": np.repeat(measures, len(worth)), "value": worth.T.ravel()}
    Values.write(path, columns)
    return path


@pytest.fixture
def rows(tmp_path: Path) -> dict[str, np.ndarray]:
    random = np.random.default_rng(0)
    base = random.uniform(size=(120, 2))
    worse, better = np.clip(base - 0.2, 0, 1), np.clip(base + random.normal(0.1, 0.2, size=base.shape), 0, 1)
    return {"bm25": base, "backbone": worse, "retriever1": better, "retriever": better}
