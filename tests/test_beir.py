"""The stages of pipelines/beir on real collections: what is known of BM25 there comes out, and the average of it."""

import json
from pathlib import Path

import pytest

from stages.averaging import macro
from stages.bm25 import bm25
from stages.corpus import corpus
from stages.evaluation import evaluate

DATA = Path(__file__).parents[2] / "shared" / "data"
needs_data = pytest.mark.skipif(not DATA.is_dir(), reason="the real collections are not beside the project")
KNOWN = {"cranfield": (0.4026, 0.7378), "npl": (0.4368, 0.6186)}  # test_bm25 has nfcorpus and scifact


@needs_data
def test_bm25_gives_what_others_measured(tmp_path: Path) -> None:
    for name, (ndcg, recall) in KNOWN.items():
        folder = tmp_path / name
        tables = [folder / table for table in ("passages", "queries", "qrels")]
        corpus(f"beir:{DATA / name}", *tables, folder / "corpus.json", training=False, partial=True)
        bm25(tables[0], tables[1], folder / "run", depth=100, splits=["test"])
        out = tmp_path / "bm25" / f"{name}.json"
        measures = ["nDCG@10", "R@100"]
        evaluate(
            folder / "run",
            *tables[1:],
            out,
            folder / "v",
            folder / "t",
            measures=measures,
            drop_identical=True,
            draws=100,
        )
        report = json.loads(out.read_text())
        assert report["nDCG@10"]["mean"] == pytest.approx(ndcg, abs=0.003)
        assert report["R@100"]["mean"] == pytest.approx(recall, abs=0.003)
    macro([tmp_path / "bm25"], tmp_path / "macro.json")
    average = json.loads((tmp_path / "macro.json").read_text())["average"]["bm25"]
    assert average == pytest.approx(sum(ndcg for ndcg, _ in KNOWN.values()) / 2, abs=0.003)
