"""Every pipeline beside the default one: its stages' deps, its commands against the signatures, its sets."""

import re
import shlex
from pathlib import Path
from typing import Any

import pytest
import yaml

from stages.__main__ import CHAPTERS, open_chapter, without_nulls
from tests.test_plot import ROOMS, ROOT, arguments, body, imports, opened

PIPELINES = sorted((ROOT / "pipelines").glob("*/dvc.yaml"))
CASES = [(path, name) for path in PIPELINES for name in yaml.safe_load(path.read_text())["stages"]]
NAMES = [f"{path.parent.name}:{name}" for path, name in CASES]


def stage_of(path: Path, name: str) -> Any:
    return yaml.safe_load(path.read_text())["stages"][name]


def each(stage: Any, params: Any) -> list[dict[str, Any]]:
    """What the stage is repeated for, as the names that its text uses."""
    if "matrix" in stage:
        keys = stage["matrix"]
        rows: list[dict[str, Any]] = [{}]
        for key, values in keys.items():
            rows = [row | {key: value} for row in rows for value in values]
        return [{"item": row} for row in rows]
    items = stage.get("foreach")
    if isinstance(items, str):
        items = params[items.strip("${}")]
    if isinstance(items, list):
        return [{"item": item} for item in items]
    return [{"key": key, "item": item} for key, item in items.items()] if items else [{}]


def test_there_are_pipelines() -> None:
    assert {"beir", "trec-dl"} <= {path.parent.name for path in PIPELINES}


@pytest.mark.parametrize(("path", "name"), CASES, ids=NAMES)
def test_a_stage_runs_from_the_root_and_depends_on_its_code(path: Path, name: str) -> None:
    stage = body(stage_of(path, name))
    assert stage["wdir"] == "../.."
    assert "metrics" not in stage  # of a pipeline that has not run they would be missing in dvc metrics show
    params = yaml.safe_load((path.parent / "params.yaml").read_text())
    command, *_ = arguments(stage["cmd"], params | each(stage_of(path, name), params)[0])
    chapter = ROOT / "stages" / f"{CHAPTERS[command][0]}.py"
    rooms = {room for direct in imports(chapter) & ROOMS for room in opened(direct)}
    expected = {f"stages/{chapter.name}"} | {f"stages/{room}" for room in rooms}
    assert {dep for dep in stage["deps"] if re.match(r"stages/(?!recipes/)", dep)} == expected


@pytest.mark.parametrize(("path", "name"), CASES, ids=NAMES)
def test_every_command_fits_its_signature_and_names_what_it_reads_and_writes(path: Path, name: str) -> None:
    params = yaml.safe_load((path.parent / "params.yaml").read_text())
    stage = stage_of(path, name)
    for names in each(stage, params):
        chapter, *rest = arguments(body(stage)["cmd"], params | names)
        open_chapter(chapter).make_context(chapter, without_nulls(rest))
        text = shlex.join(arguments(body(stage)["cmd"], params | names))
        for place in ("deps", "outs"):
            for file in body(stage).get(place, []):
                file = arguments(f"python -m stages {file}", params | names)[0]
                folder = place == "deps" and "/values/" in f"{file}/"
                assert file.startswith("stages/") or file in text or folder, file


def test_beir_has_its_eighteen_sets() -> None:
    sets = yaml.safe_load((ROOT / "pipelines" / "beir" / "params.yaml").read_text())["sets"]
    forums = [name for name in sets if name.startswith("cqadupstack-")]
    assert (len(forums), len(sets) - len(forums) + 1) == (12, 18)
