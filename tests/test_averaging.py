"""The macro average over collections, by hand."""

import json
from pathlib import Path

import pytest

from stages.artifacts.refusal import Refusal
from stages.averaging import macro

BM25 = {"scifact": 0.6, "cqadupstack-stats": 0.2, "cqadupstack-tex": 0.4, "arguana": 0.3}


def evaluations(folder: Path, means: dict[str, float]) -> Path:
    folder.mkdir()
    for name, mean in means.items():
        (folder / f"{name}.json").write_text(json.dumps({"queries": 3, "nDCG@10": {"mean": mean, "low": 0, "high": 1}}))
    return folder


def test_forums_count_as_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folders = [evaluations(tmp_path / "bm25", BM25), evaluations(tmp_path / "mine", dict.fromkeys(BM25, 0.5))]
    macro(folders, tmp_path / "m.json", tmp_path / "m.md", groups=["cqadupstack"])
    report = json.loads((tmp_path / "m.json").read_text())
    assert report["average"] == {"bm25": pytest.approx((0.6 + 0.3 + 0.3) / 3), "mine": pytest.approx(0.5)}
    assert report["collections"]["cqadupstack"] == {"bm25": pytest.approx(0.3), "mine": 0.5}
    assert (report["count"], report["measure"]) == (3, "nDCG@10")
    lines = (tmp_path / "m.md").read_text().splitlines()
    assert lines[:3] == ["| nDCG@10 | bm25 | mine |", "|---|---|---|", "| arguana | 0.300 | 0.500 |"]
    assert lines[-1] == "| average of 3 | 0.400 | 0.500 |"
    assert capsys.readouterr().out.splitlines() == lines
    macro(folders[:1], tmp_path / "m.json")
    assert json.loads((tmp_path / "m.json").read_text())["average"]["bm25"] == pytest.approx(1.5 / 4)


def test_refused(tmp_path: Path) -> None:
    one, other = evaluations(tmp_path / "a", BM25), evaluations(tmp_path / "b", {"scifact": 0.1})
    (tmp_path / "empty").mkdir()
    for folders, measure, line in (
        ([one, other], "nDCG@10", "arguana: only one of a and b has an evaluation of it"),
        ([one], "RR@10", f"{one / 'arguana.json'}: no mean of RR@10"),
        ([tmp_path / "empty"], "nDCG@10", f"{tmp_path / 'empty'}: no evaluations"),
        ([one, one], "nDCG@10", f"folders: {one}, {one}: two have one name"),
    ):
        with pytest.raises(Refusal) as refusal:
            macro(folders, tmp_path / "m.json", measure=measure)
        assert str(refusal.value) == line
