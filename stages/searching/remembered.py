"""How queries and passages were read when the run was made: what dvc.lock remembers of its commands."""

import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from stages.artifacts.refusal import Refusal


@dataclass(frozen=True)
class Said:
    """Where a setting of the search stands in the lock file.

    Attributes:
        stage, option: the stage of dvc.yaml whose command says it.
        silent: that stage's default, which holds where it says nothing, or where there is no lock file.
    """

    stage: str
    option: str
    silent: float


SETTINGS = {
    "longest": Said("rank@retriever", "--longest", 128),
    "longest_query": Said("rank@retriever", "--longest-query", 32),
    "feedback": Said("rank@retriever", "--feedback", 0),
    "feedback_weight": Said("rank@retriever", "--feedback-weight", 0.2),
    "longest_pair": Said("rerank", "--longest", 160),
    "candidates": Said("rerank", "--depth", 200),
    "prior": Said("rerank", "--prior", 0.0),
    "k1": Said("bm25", "--k1", 0.9),
    "b": Said("bm25", "--b", 0.4),
}


def remembered(lock: Path) -> dict[str, Any]:
    """Every setting as the run had it, in the type of its default.

    Raises:
        Refusal: the file is no lock file, or an option's value no number.
    """
    commands = _commands(lock) if lock.is_file() else {}
    return {name: _value(lock, said, commands.get(said.stage, [])) for name, said in SETTINGS.items()}


def _commands(lock: Path) -> dict[str, list[str]]:
    """The words of every stage's command."""
    try:
        loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # a lock file is long: the quick one where there is one
        stages = yaml.load(lock.read_text("utf-8"), loader)["stages"]
        return {name: shlex.split(stage["cmd"]) for name, stage in stages.items()}
    except (yaml.YAMLError, LookupError, TypeError, AttributeError, ValueError) as error:
        raise Refusal(f"{lock}: not a lock file of DVC") from error


def _value(lock: Path, said: Said, words: list[str]) -> float:
    if said.option not in words:
        return said.silent
    word = words[words.index(said.option) + 1]
    try:
        return type(said.silent)(word)
    except ValueError as error:
        raise Refusal(f"{lock}: stage {said.stage}: {said.option} {word} is not a number") from error
