"""A search reads queries and passages as the run did that it searches."""

from inspect import signature
from pathlib import Path
from typing import Any

import pytest
import yaml

from stages.artifacts.refusal import Refusal
from stages.bm25 import bm25
from stages.mining import mine
from stages.rescoring import rescore
from stages.searching.remembered import SETTINGS, remembered

ROOT = Path(__file__).parents[2]
STAGES: dict[str, Any] = {"rank@retriever": mine, "rerank": rescore, "bm25": bm25}


def locked(folder: Path, **commands: str) -> Path:
    """A lock file with commands by stage."""
    out = folder / "dvc.lock"
    stages = {name.replace("_at_", "@"): {"cmd": command} for name, command in commands.items()}
    out.write_text(yaml.safe_dump({"schema": "2.0", "stages": stages}))
    return out


def test_without_a_run_the_stages_own_defaults_hold(tmp_path: Path) -> None:
    for name, value in remembered(tmp_path / "dvc.lock").items():
        said = SETTINGS[name]
        parameter = signature(STAGES[said.stage]).parameters[said.option.removeprefix("--").replace("-", "_")]
        assert value == parameter.default, name
        assert type(value) is type(parameter.default), name


def test_what_a_run_said_holds_and_where_it_was_silent_the_default(tmp_path: Path) -> None:
    mined = "python -m stages mine model 'a folder' --longest 144 --longest-query 24 --depth 7"
    lock = locked(tmp_path, rank_at_retriever=mined, rerank="python -m stages rescore m --depth 30")
    found = remembered(lock)
    assert (found["longest"], found["longest_query"], found["candidates"]) == (144, 24, 30)
    assert (found["prior"], found["longest_pair"], found["k1"]) == (0.0, 160, 0.9)


def test_the_default_run_is_found_under_these_names() -> None:
    params = yaml.safe_load((ROOT / "params.yaml").read_text())
    found = remembered(ROOT / "dvc.lock")
    assert (found["longest"], found["longest_query"]) == (
        params["lengths"]["longest"],
        params["lengths"]["longest-query"],
    )
    assert found["longest_pair"] == params["crossencoder"]["lengths"]["longest"]
    assert (found["candidates"], found["prior"]) == (params["rerank"]["depth"], params["rerank"]["prior"])
    assert (found["k1"], found["b"]) == (params["bm25"]["k1"], params["bm25"]["b"])


@pytest.mark.parametrize("text", ["stages: [", "- one", "stages: {rerank: {}}", "stages: 3", ""])
def test_a_broken_lock_file_is_refused(text: str, tmp_path: Path) -> None:
    (tmp_path / "dvc.lock").write_text(text)
    with pytest.raises(Refusal, match=r"dvc\.lock: not a lock file of DVC"):
        remembered(tmp_path / "dvc.lock")


def test_a_value_that_is_no_number_is_refused(tmp_path: Path) -> None:
    lock = locked(tmp_path, rerank="python -m stages rescore m --depth many")
    with pytest.raises(Refusal, match=r"stage rerank: --depth many is not a number"):
        remembered(lock)
