"""What is drawn from a collection to try the stages on, and what is counted of both."""

from pathlib import Path
from typing import Any

import pyarrow as pa

from stages.artifacts.tables import Passages, Qrels
from stages.surveying.sample import Tables, draw


def test_queries_and_their_positives_are_counted(world: Any, tmp_path: Path) -> None:
    more = {"query_id": ["q-p0-0", "q-p1-0"], "passage_id": ["p5-0", "p5-0"], "relevance": pa.array([1, 0], pa.int8())}
    Qrels.write(tmp_path / "judged", pa.concat_tables([Qrels.read(world.qrels), pa.table(more, Qrels.schema)]))
    out = Tables(*(tmp_path / name for name in ("passages", "queries", "qrels")))
    whole, sample = draw(Tables(world.passages, world.queries, tmp_path / "judged"), out)
    assert whole.queries == {"train": 36, "dev": 12, "test": 12}
    assert whole.positives == {"train": 37, "dev": 12, "test": 12}
    assert sample.queries == {"train": 32, "dev": 8, "test": 8}
    assert sample.positives == {"train": 33, "dev": 8, "test": 8}
    assert (whole.judged(None), whole.judged(["dev", "test"])) == (61, 24)
    assert sample.passages == Passages.count(out.passages)
