"""What ran: how long a stage took is told, or follows from what it counted."""

from pathlib import Path
from typing import Any

import pytest

from stages.artifacts.documents import write_json
from stages.reporting.ran import speeds


@pytest.mark.parametrize(
    ("metrics", "seconds", "rates"),
    [
        ({"speed": {"seconds": 2.5, "tokens_per_second": 10.0}}, 2.5, {"tokens": 10.0}),
        ({"speed": {"texts": 4}, "texts": 10}, 2.5, {"texts": 4}),
        ({"speed": 4, "pieces": 10}, 2.5, {"pieces": 4}),
        ({"speed": {"padding": 0.1, "tokens_per_second": 10.0}}, None, {"tokens": 10.0}),
        ({"speed": {"passage_tokens_per_second": 5.0, "query_tokens_per_second": 6.0}}, None, None),
    ],
)
def test_seconds_of_a_stage(
    metrics: dict[str, Any], seconds: float | None, rates: dict[str, float] | None, tmp_path: Path
) -> None:
    write_json(tmp_path / "stage.json", metrics)
    (row,) = speeds([tmp_path / "stage.json"])
    assert row["stage"] == "stage"
    assert row["seconds"] == seconds
    assert rates is None or row["rates"] == rates


def test_metrics_without_speed_have_no_row(tmp_path: Path) -> None:
    write_json(tmp_path / "stage.json", {"passages": 3})
    assert speeds([tmp_path / "stage.json"]) == []
