"""The stages of a DVC pipeline as it would run now, each with its options as its signature understands them."""

import shlex
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

from stages.artifacts.refusal import Refusal

PROGRAM = ["python", "-m", "stages"]


@dataclass(frozen=True)
class Step:
    """One stage.

    Attributes:
        name: DVC's name, such as ``rank@encoder``.
        words: the command line from the chapter's name on.
        options: every argument and option by its Python name, defaults included.
        outs: paths that it writes.
        stale: whether they come from other options, as `dvc.lock` remembers them.
    """

    name: str
    words: list[str]
    options: Mapping[str, Any]
    outs: tuple[str, ...]
    stale: bool = False

    @property
    def chapter(self) -> str:
        """The command that it runs."""
        return self.words[0]


def steps(file: str = "dvc.yaml") -> list[Step]:
    """The stages of a pipeline in an order in which they can run, parameters filled in by DVC.

    Raises:
        Refusal: no DVC project, a broken file, or a parameter that a signature does not take.
    """
    import networkx
    from dvc.exceptions import DvcException
    from dvc.repo import Repo

    try:
        with closing(Repo()) as repo:
            read = {stage: place for place, stage in enumerate(repo.index.stages)}
            order = networkx.lexicographical_topological_sort(repo.index.graph.reverse(), read.get)
            ours = [stage for stage in order if stage.path_in_repo == file]
            found = [
                _step(stage.name, stage.cmd, [out.def_path for out in stage.outs], stage.cmd_changed) for stage in ours
            ]
    except DvcException as error:
        raise Refusal(f"{file}: {' '.join(str(error).split())}") from error
    if not found:
        raise Refusal(f"{file}: no stages")
    return found


def context(words: list[str]) -> Any:
    """The parsed command line of a chapter.

    Raises:
        Refusal: the chapter does not take it.
    """
    contents: Any = import_module("stages.__main__")  # by name: a room knows no chapter, but here one is run
    try:
        return contents.open_chapter(words[0]).make_context(words[0], contents.without_nulls(words[1:]))
    except Exception as error:
        if hasattr(error, "format_message"):
            raise Refusal(f"{words[0]}: {error.format_message()}") from error
        raise


def _step(name: str, command: str, outs: list[str], stale: bool) -> Step:
    words = shlex.split(command)
    if words[:3] != PROGRAM:
        raise Refusal(f"stage {name}: the command does not begin with {' '.join(PROGRAM)}")
    return Step(name, words[3:], context(words[3:]).params, tuple(str(Path(out)) for out in outs), stale)
