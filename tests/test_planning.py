"""The chapter plan: every stage of a small clone, tried and estimated before anything has run."""

import json
import re
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from stages import planning
from stages.artifacts.refusal import Refusal
from stages.surveying.machine import Machine
from stages.surveying.pipeline import steps

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of what DVC imports

ROOMY = Machine(2, 10**12, 10**13, (), True)


@pytest.fixture
def here(clone: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(clone)
    monkeypatch.syspath_prepend(str(clone.parent / "packages"))
    return clone


def test_the_stages_in_an_order_in_which_they_can_run(here: Path) -> None:
    found = steps()
    names = [step.name for step in found]
    assert len(names) == len(set(names)) >= 30
    assert {"corpus", "rank@retriever1", "evaluate@corpus-retriever", "compare"} <= set(names)
    written: set[str] = set()
    for step in found:
        for word in step.words:
            if re.match(r"(data|models)/", word) and word not in step.outs:
                within = any(out.startswith(f"{word}/") for out in written)
                assert word in written or within, (step.name, word)
        written |= set(step.outs)
    retriever = next(step for step in found if step.name == "retriever1")
    assert (retriever.options["batch"], retriever.options["longest"]) == (8, 96)  # the second --longest is the one


def test_a_parameter_that_no_stage_takes_is_refused(here: Path) -> None:
    file = here / "params.yaml"
    before = file.read_text()
    file.write_text(before.replace("new-parts:", "newer-parts:"))
    try:
        with pytest.raises(Refusal, match=r"^pretrain: No such option: --newer-parts"):
            steps()
    finally:
        file.write_text(before)


def test_other_pipelines_have_other_stages(here: Path) -> None:
    with pytest.raises(Refusal, match=r"^pipelines/nothing/dvc.yaml: no stages$"):
        steps("pipelines/nothing/dvc.yaml")


def test_a_plan(
    here: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    before = subprocess.run(["git", "status", "--short", "--ignored"], capture_output=True, text=True).stdout
    monkeypatch.setattr(planning, "survey", lambda folder: ROOMY)
    planning.plan(out=tmp_path / "plan.json")
    said = capsys.readouterr().out.splitlines()
    found = json.loads((tmp_path / "plan.json").read_text())
    assert set(found) == {step.name for step in steps()} - {"corpus", "backbone"}
    assert all(row["seconds"] > 0 and row["memory"] > 0 and row["disk"] > 0 for row in found.values())
    assert found["retriever1"]["negatives"] == 8 * 2 - 1
    assert found["retriever"]["negatives"] == 8 * 3 - 1
    assert any(re.match(r"retriever1 +\d.*15, 1 of them hard$", line) for line in said)
    assert any(line.startswith("This machine: 2 cores, ") for line in said[-2:])
    after = subprocess.run(["git", "status", "--short", "--ignored"], capture_output=True, text=True).stdout
    assert after == before  # nothing is left behind


def test_what_cannot_fit_is_refused(monkeypatch: pytest.MonkeyPatch, here: Path) -> None:
    from stages.surveying.estimates import Estimate

    todo = [step for step in steps() if step.name in ("pretrain", "compare")]
    needs = {"pretrain": Estimate(1.0, 5e9, 3e9), "compare": Estimate(1.0, 1e9, 0.0)}
    planning._refuse(todo, needs, ROOMY, 2)
    with pytest.raises(
        Refusal, match=r"^pretrain: needs 5\.0 GB of memory, this machine has 4\.0 GB; pretrain\.pieces"
    ):
        planning._refuse(todo, needs, replace(ROOMY, memory=4 * 10**9), 1)
    with pytest.raises(Refusal, match=r"^pretrain: needs 5\.0 GB of memory, T4 has 2\.0 GB"):
        planning._refuse(todo, needs, replace(ROOMY, gpus=(("T4", 2 * 10**9),)), 1)
    with pytest.raises(Refusal, match=r"^the run writes 6\.0 GB, the disk has 5\.0 GB free$"):
        planning._refuse(todo, needs, replace(ROOMY, disk=5 * 10**9), 2)
