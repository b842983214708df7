"""What every query is worth, as the rows of a Values table and as means with intervals."""

from typing import Any

import numpy as np
import pyarrow as pa

from stages.measuring.significance import mean_interval


def value_rows(ids: pa.Array, names: list[str], worth: np.ndarray) -> dict[str, Any]:
    """The columns of a Values table, one measure after the other. ``worth``: [queries, measures]."""
    return {
        "query_id": pa.concat_arrays([ids] * len(names)),
        "measure": pa.array(np.repeat(names, len(ids)), pa.string()),
        "value": worth.T.ravel(),
    }


def summary(names: list[str], worth: np.ndarray, draws: int, seed: int) -> dict[str, dict[str, float]]:
    """{measure: {"mean", "low", "high"}} by the bootstrap. ``worth``: [queries, measures]."""
    columns = zip(names, *mean_interval(worth, draws, seed), strict=True)
    return {name: {"mean": float(m), "low": float(low), "high": float(high)} for name, m, low, high in columns}
