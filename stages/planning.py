"""What a run will take on this machine, before it runs: every stage is tried on a small sample of the collection."""

import math
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import numpy as np
import typer

from stages.artifacts.documents import read_json, write_json
from stages.artifacts.names import CONFIG, WEIGHTS
from stages.artifacts.ragged import read_ragged
from stages.artifacts.refusal import Refusal
from stages.artifacts.scratch import HOME
from stages.artifacts.tables import Queries, Tokens
from stages.surveying.checks import copies
from stages.surveying.estimates import CAPS, Estimate, Scales, estimate
from stages.surveying.machine import Machine, size, survey
from stages.surveying.pipeline import Step, steps
from stages.surveying.sample import Sizes, Tables, draw
from stages.surveying.trial import Trials, timed
from stages.training.progress import Progress

GIVEN = ("corpus", "backbone")  # run for real, or taken from the project where they have been
START = "import stages.mining, transformers; transformers.AutoModel; transformers.BertModel"
WARM = f"{START}; transformers.T5ForConditionalGeneration; transformers.GPT2LMHeadModel"


def plan(
    pipeline: Annotated[Path, typer.Argument(help="dvc.yaml of the pipeline, seen from the project's root.")] = Path(
        "dvc.yaml"
    ),
    out: Annotated[Path | None, typer.Option(help="JSON of the estimates to write.")] = None,
) -> None:
    """Estimate time, memory and disk of every stage for the current parameters; refuse what cannot fit."""
    todo, machine = steps(str(pipeline)), survey(Path.cwd())
    with tempfile.TemporaryDirectory(prefix="isthmus-plan-") as folder, _scratch(Path(folder)):
        estimates = _estimated(todo, Path(folder), machine)
    copied = 2 if copies() else 1
    typer.echo("\n".join(_table(estimates, machine, copied)))
    if out:
        write_json(out, {name: asdict(found) for name, found in estimates.items()})
    _refuse(todo, estimates, machine, copied)


@contextmanager
def _scratch(folder: Path) -> Iterator[None]:
    """Keep the trials' resumable state out of the project."""
    before = os.environ.get(HOME)
    os.environ[HOME] = str(folder / "scratch")
    try:
        yield
    finally:
        if before is None:
            del os.environ[HOME]
        else:
            os.environ[HOME] = before


def _estimated(todo: list[Step], home: Path, machine: Machine) -> dict[str, Estimate]:
    known = {out for step in todo for out in step.outs}
    found: dict[str, Estimate] = {}
    with Progress("plan", len(todo), "stages") as bar:
        scales, trials = None, Trials()
        for step in sorted(todo, key=lambda step: step.chapter not in GIVEN):
            if step.chapter == "corpus":
                sizes = _corpus(step, home)
            elif step.chapter == "backbone":
                _backbone(step, home, known)
                folder = home / str(step.options["out"])
            else:
                scales = scales or _scales(sizes, folder, machine)
                if step.chapter == "mine" and not scales.pieces[0]:
                    scales.pieces = _pieces(home, step)
                found[step.name] = estimate(step, trials.seen(step, home, known), scales)
            bar.advance(1, step.name)
    return found


def _corpus(step: Step, home: Path) -> tuple[Sizes, Sizes]:
    """Draw the sample from the project's tables; where there are none of this source, it is read first."""
    tables = Tables(*(Path(step.options[name]) for name in ("passages", "queries", "qrels")))
    if tables.there and not step.stale:
        return draw(tables, tables.under(home))
    words = [str(home / "whole" / word) if word in step.outs else word for word in step.words]
    timed(words)
    return draw(tables.under(home / "whole"), tables.under(home))


def _backbone(step: Step, home: Path, known: set[str]) -> None:
    """Lend the project's backbone to the sample, or make it there."""
    folder, target = Path(step.options["out"]), home / step.options["out"]
    if (folder / WEIGHTS).is_file() and not step.stale:
        target.parent.mkdir(parents=True, exist_ok=True)
        target.symlink_to(folder.absolute())
    else:
        timed([str(home / word) if word in known else word for word in step.words])


def _scales(sizes: tuple[Sizes, Sizes], backbone: Path, machine: Machine) -> Scales:
    import psutil

    began, worked = time.perf_counter(), _children()
    subprocess.run([sys.executable, "-c", START], check=True)
    start = min(time.perf_counter() - began, _children() - worked)
    exec(WARM, {})  # the same imports here and more, so that no stage's trial is charged with them
    base = psutil.Process().memory_info().rss
    width = int(read_json(backbone / CONFIG)["hidden_size"])
    return Scales(*sizes, start, base, (backbone / WEIGHTS).stat().st_size, width, (0.0, 0.0), machine.cores)


def _children() -> float:
    """Seconds that finished child processes have worked."""
    times = os.times()
    return times.children_user + times.children_system


def _pieces(home: Path, mine: Step) -> tuple[float, float]:
    """Mean pieces of a passage and of a query as ranking cuts them."""
    tokens, queries = (home / str(mine.options[name]) for name in ("tokens", "queries"))
    passage = np.minimum(read_ragged(Tokens, tokens, "pieces").lengths + 2, mine.options["longest"]).mean()
    words = np.array([len(text.split()) for text in Queries.read(queries)["text"].to_pylist()])
    return float(passage), float(np.minimum(words * 1.3 + 2, mine.options["longest_query"]).mean())


def _table(estimates: dict[str, Estimate], machine: Machine, copied: int) -> list[str]:
    """What people read."""
    lines = [f"{'stage':28}{'time':>10}{'memory':>10}{'disk':>10}   negatives of a query in a step"]
    for name, found in estimates.items():
        seen = f"   {found.negatives:,}, {found.hard} of them hard" if found.negatives else ""
        lines.append(f"{name:28}{span(found.seconds):>10}{size(found.memory):>10}{size(found.disk):>10}{seen}")
    time_, memory, disk = _sums(estimates, copied)
    lines += [f"{'all':28}{span(time_):>10}{size(memory):>10}{size(disk):>10}", ""]
    where = f"{machine.cores} cores, {size(machine.memory)} of memory and {size(machine.disk)} of disk free"
    double = ", where DVC's copies count too" if copied > 1 else ""
    lines.append(f"This machine: {where}; memory is the largest stage's, disk the sum{double}.")
    load = os.getloadavg()[1]
    if load > machine.cores + 1:
        lines.append(f"It is busy (load {load:.0f}): the times are those of a machine as busy as now.")
    return lines


def _sums(estimates: dict[str, Estimate], copied: int) -> tuple[float, float, float]:
    """Seconds of all stages, memory of the largest, bytes written."""
    found = estimates.values()
    return sum(e.seconds for e in found), max(e.memory for e in found), copied * sum(e.disk for e in found)


def _refuse(todo: list[Step], estimates: dict[str, Estimate], machine: Machine, copied: int) -> None:
    """Raise `Refusal` where memory or disk will not do."""
    free, where = (machine.gpus[0][1], machine.gpus[0][0]) if machine.gpus else (machine.memory, "this machine")
    for step in todo:
        needed = estimates[step.name].memory if step.name in estimates else 0
        if needed > free:
            cap = CAPS.get(step.chapter)
            less = f"; {step.name}.{cap} bounds what is in work at once" if cap else ""
            raise Refusal(f"{step.name}: needs {size(needed)} of memory, {where} has {size(free)}{less}")
    disk = _sums(estimates, copied)[2]
    if disk > machine.disk:
        raise Refusal(f"the run writes {size(disk)}, the disk has {size(machine.disk)} free")


def span(seconds: float) -> str:
    """Seconds as people write them: ``48 s``, ``3 min``, ``5.2 h``, ``12 d``."""
    for unit, length, limit in (("s", 1, 100), ("min", 60, 100), ("h", 3600, 72), ("d", 86400, math.inf)):
        if seconds / length < limit:
            return f"{seconds / length:.{1 if unit == 'h' else 0}f} {unit}"
    raise AssertionError(seconds)
