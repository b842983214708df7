"""dvc.yaml against the code: a stage depends on its chapter and the rooms that it opens, and on nothing more."""

import ast
import re
import shlex
import sys
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from stages.__main__ import CHAPTERS, app, open_chapter, without_nulls

ROOT = Path(__file__).parents[1]
STAGES = yaml.safe_load((ROOT / "dvc.yaml").read_text())["stages"]
PROFILES = [ROOT / "params.yaml", *sorted((ROOT / "profiles").glob("*.yaml"))]
ROOMS = {path.name for path in (ROOT / "stages").iterdir() if (path / "__init__.py").exists()}


@cache
def imports(file: Path) -> set[str]:
    """The rooms and chapters that a file imports, anywhere in it."""
    found = set()
    for node in ast.walk(ast.parse(file.read_text())):
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
        found |= {name.split(".")[1] for name in names if name.startswith("stages.")}
    return found


@cache
def opened(room: str) -> frozenset[str]:
    """A room and every room behind it."""
    seen, new = {room}, {room}
    while new:
        new = {other for one in new for file in (ROOT / "stages" / one).rglob("*.py") for other in imports(file)} - seen
        seen |= new
    return frozenset(seen)


def body(stage: dict) -> dict:  # type: ignore[type-arg]
    return stage.get("do", stage)  # type: ignore[no-any-return]


@pytest.mark.parametrize("name", STAGES)
def test_a_stage_depends_on_its_chapter_and_rooms(name: str) -> None:
    command = re.search(r"-m stages (\S+)", body(STAGES[name])["cmd"])
    assert command
    chapter = ROOT / "stages" / f"{CHAPTERS[command[1]][0]}.py"
    rooms = {room for direct in imports(chapter) & ROOMS for room in opened(direct)}
    expected = {f"stages/{chapter.name}"} | {f"stages/{room}" for room in rooms}
    assert {dep for dep in body(STAGES[name])["deps"] if dep.startswith("stages/")} == expected


@pytest.mark.parametrize("room", sorted(ROOMS))
def test_rooms_never_import_chapters(room: str) -> None:
    allowed = {"training": set(), "artifacts": {"training"}}.get(room, ROOMS) | {room}
    for file in (ROOT / "stages" / room).rglob("*.py"):
        assert imports(file) <= allowed, file


def test_pre_training_and_ranking_do_not_know_each_other() -> None:
    assert "ranking" not in opened("bottleneck")
    assert "bottleneck" not in opened("ranking")


def test_chapters_never_import_chapters() -> None:
    for file in (ROOT / "stages").glob("*.py"):
        if file.name != "__main__.py":
            assert imports(file) <= ROOMS, file


def arguments(command: str, params: dict) -> list[str]:  # type: ignore[type-arg]
    """A stage's command line as DVC writes it."""

    def options(group: dict) -> str:  # type: ignore[type-arg]
        words = []
        for key, value in group.items():
            for one in value if isinstance(value, list) else [value]:
                flag = f"--{key}" if one is not False else f"--no-{key}"
                words.append(flag if isinstance(one, bool) else f"{flag} {one}")
        return " ".join(words)

    def value(match: re.Match) -> str:  # type: ignore[type-arg]
        place = params
        for key in match[1].split("."):
            place = place[key]
        return options(place) if isinstance(place, dict) else str(place)

    return shlex.split(re.sub(r"\$\{([^}]+)\}", value, command))[3:]


@pytest.mark.parametrize("profile", PROFILES, ids=lambda path: path.stem)
@pytest.mark.parametrize("name", STAGES)
def test_every_profile_fits_every_signature(profile: Path, name: str) -> None:
    stage = STAGES[name]
    params = yaml.safe_load(profile.read_text())
    each: Any = stage.get("foreach", stage.get("matrix", {}))
    if isinstance(each, list):
        params["item"] = each[0]
    elif "foreach" in stage:
        params["key"], params["item"] = next(iter(each.items()))
    else:
        params["item"] = {key: values[0] for key, values in each.items()}
    chapter, *rest = arguments(body(stage)["cmd"], params)
    open_chapter(chapter).make_context(chapter, without_nulls(rest))  # parses, and raises where something is off


def test_profiles_are_complete() -> None:
    keys = set(yaml.safe_load((ROOT / "params.yaml").read_text()))
    for profile in PROFILES:
        assert set(yaml.safe_load(profile.read_text())) == keys, profile


def test_a_wrong_parameter_is_refused_before_anything_runs() -> None:
    for line, complaint in (("--stepz 3", "No such option"), ("--steps many", "Invalid value for '--steps'")):
        result = CliRunner().invoke(app, shlex.split(f"pretrain a b c d e --metrics m {line}"))
        assert result.exit_code == 2
        assert complaint in result.output


def test_the_contents_name_every_chapter_and_import_none() -> None:
    before = set(sys.modules)
    result = CliRunner().invoke(app, ["--help"])
    assert result.exit_code == 0
    assert all(name in result.output for name in CHAPTERS)
    assert not {name for name in set(sys.modules) - before if name.startswith("stages.")}


def test_underscores_and_nulls_of_params_yaml() -> None:
    assert without_nulls(["a", "--b", "None", "--c", "1"]) == ["a", "--c", "1"]
    result = CliRunner().invoke(app, shlex.split("pretrain a b c d e --metrics m --learning_rate -1"))
    assert "--learning-rate" in result.output
