"""A stage tried on a sample: its own code with its own options, but few steps; how long, how much memory and disk."""

import contextlib
import gc
import io
import os
import shutil
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from stages.artifacts.documents import read_json, read_yaml, write_json
from stages.bottleneck.recipe import load_recipe
from stages.surveying.pipeline import Step, context

BATCH = 8  # largest batch that is tried; larger ones are that many times as long
STEPS = (1, 3)  # a training is tried twice: what the longer takes more is steps, the rest is its start
GENERATOR = (2, 12)  # the same for own generators, whose steps are short


@dataclass(frozen=True)
class Seen:
    """What a trial has shown.

    Attributes:
        start: seconds without optimiser steps, in a program that has started: what a first call imports is not counted.
        step: seconds of an optimiser step; 0 where there are none.
        memory: bytes by which the process grew at most, on the GPU where there is one.
        written: out → bytes.
        metrics: what the stage told, of a stage without steps when it was tried first.
    """

    start: float
    step: float
    memory: int
    written: dict[str, int] = field(default_factory=dict)
    metrics: Mapping[str, Any] = field(default_factory=dict)


def attempt(step: Step, home: Path, known: set[str]) -> Seen:
    """Try a stage in the folder ``home``, which holds the sample under the same paths.

    Args:
        known: every path that a stage of the pipeline writes; these are looked for in ``home``.

    Raises:
        Refusal: the stage refuses its input.
    """
    counts: tuple[int, int] | tuple[None, None] = (None, None)
    if "steps" in step.options:
        counts = GENERATOR if step.chapter in ("doc2query", "continuations") else STEPS
    first, grown = timed(_words(step, home, known, counts[0]))
    told = _told(step, home)
    second, more = timed(_words(step, home, known, counts[1]))
    written = {out: _size(home / out) for out in step.outs}
    if counts[0] is None:
        return Seen(second, 0.0, max(grown, more), written, told)
    each = max(second - first, 0.0) / (counts[1] - counts[0])
    start = max(first - counts[0] * each, 0.0) + _generator(step, home, known, first)
    return Seen(start, each, max(grown, more), written, _told(step, home))


def _generator(step: Step, home: Path, known: set[str], before: float) -> float:
    """Seconds that a recipe's own generator will train before pre-training begins; 0 where it has none.

    Args:
        before: seconds of a trial in which it trained for one step.
    """
    steps = _generator_steps(step.words[1]) if step.chapter == "pretrain" else 0
    if not steps:
        return 0.0
    after, _ = timed(_words(step, home, known, STEPS[0], STEPS[1]))
    larger: float = step.options["batch"] / min(step.options["batch"], BATCH)
    return max(after - before, 0.0) / (STEPS[1] - 1) * steps * larger


def _generator_steps(recipe: str) -> int:
    """Optimiser steps of a recipe's generator alone."""
    spec = load_recipe(recipe).generator
    return spec.steps if spec and not spec.checkpoint else 0


ALIKE = ("evaluate", "mine", "retriever")  # stages of these chapters that differ in nothing but paths cost the same


def twin(step: Step) -> tuple[Any, ...] | None:
    """Equal for stages of which one trial is enough; None where each needs its own."""
    if step.chapter not in ALIKE:
        return None
    values = {name: isinstance(value, Path) or value for name, value in step.options.items()}
    return step.chapter, *(f"{name}={value}" for name, value in sorted(values.items()))


def lend(other: Step, step: Step, home: Path) -> None:
    """Give a stage that was not tried what its twin wrote, for the stages behind it."""
    for source, target in zip(other.outs, step.outs, strict=True):
        if (home / source).is_dir():
            shutil.copytree(home / source, home / target, dirs_exist_ok=True)
        elif (home / source).is_file():
            (home / target).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(home / source, home / target)


@dataclass(frozen=True)
class Trials:
    """Trials, one for all stages that are alike."""

    done: dict[tuple[Any, ...], tuple[Step, Seen]] = field(default_factory=dict)

    def seen(self, step: Step, home: Path, known: set[str]) -> Seen:
        """What a stage, or its twin, has shown."""
        key = twin(step) or (step.name,)
        if key in self.done:
            other, seen = self.done[key]
            lend(other, step, home)
            names = dict(zip(other.outs, step.outs, strict=True))
            return replace(seen, written={names[out]: size for out, size in seen.written.items()})
        self.done[key] = step, attempt(step, home, known)
        return self.done[key][1]


def _words(step: Step, home: Path, known: set[str], count: int | None, generator: int = 1) -> list[str]:
    """The command line on the sample.

    Args:
        count: optimiser steps, where there are any.
        generator: steps of a recipe's own generator.
    """
    words = [str(home / word) if _is_path(word, known) else word for word in step.words]
    if "--curves" in words and step.options.get("curves"):  # which a training writes; nobody will look at these
        place = words.index("--curves")
        del words[place : place + 2]
    if step.chapter == "pretrain":
        words[1] = str(_recipe(Path(words[1]), home, generator))
        words += ["--probe", "0", "--new-parts", "0"]
    if count is not None:
        words += ["--steps", str(count)]
        if "batch" in step.options:
            words += ["--batch", str(min(step.options["batch"], BATCH))]
    if "probe_every" in step.options:
        words += ["--probe-every", "0"]
    return words


def _is_path(word: str, known: set[str]) -> bool:
    return word in known or str(Path(word).parent) in known or any(out.startswith(f"{word}/") for out in known)


def _recipe(path: Path, home: Path, steps: int) -> Path:
    """The recipe, whose own generator, if it has one, trains for so many steps."""
    recipe = read_yaml(path)
    if isinstance(recipe, dict) and isinstance(recipe.get("generator"), dict):
        recipe["generator"] |= {"steps": steps}
    copy = home / "recipe.yaml"
    write_json(copy, recipe)  # JSON is YAML
    return copy


def timed(words: list[str]) -> tuple[float, int]:
    """Run a chapter here; seconds, and bytes by which this process grew at most.

    Where other programs keep the machine busy, no more than the seconds that all cores together have worked.
    """
    parsed = context(words)
    with _silence(), Watch() as watch:
        began, worked = time.perf_counter(), time.process_time()
        parsed.command.invoke(parsed)
        seconds, worked = time.perf_counter() - began, time.process_time() - worked
    return seconds if watch.on_gpu else min(seconds, worked), watch.grown


@contextlib.contextmanager
def _silence() -> Iterator[None]:
    with contextlib.redirect_stderr(io.StringIO()), contextlib.redirect_stdout(io.StringIO()):
        yield


class Watch:
    """The most memory that this process has held above what it held before; on the GPU where there is one."""

    def __enter__(self) -> "Watch":
        import psutil
        import torch

        gc.collect()
        self.on_gpu = torch.cuda.is_available()
        if self.on_gpu:
            torch.cuda.reset_peak_memory_stats()
        self.process = psutil.Process(os.getpid())
        self.before = self.most = self.process.memory_info().rss
        self.over = threading.Event()
        self.thread = threading.Thread(target=self._look, daemon=True)
        self.thread.start()
        return self

    def _look(self) -> None:
        while not self.over.wait(0.01):
            self.most = max(self.most, self.process.memory_info().rss)

    def __exit__(self, *_: object) -> None:
        import torch

        self.over.set()
        self.thread.join()
        self.grown = int(torch.cuda.max_memory_allocated()) if self.on_gpu else self.most - self.before


def _size(path: Path) -> int:
    if path.is_dir():
        return sum(file.stat().st_size for file in path.rglob("*") if file.is_file())
    return path.stat().st_size if path.is_file() else 0


def _told(step: Step, home: Path) -> Mapping[str, Any]:
    path = step.options.get("metrics")
    found = read_json(home / path) if path and (home / path).is_file() else {}
    return found if isinstance(found, dict) else {}
