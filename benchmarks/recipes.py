"""What is each recipe worth here? Pre-training under one budget, then Retriever 1 on the same pairs.

    python benchmarks/recipes.py                                  # in a project whose `dvc repro` has finished
    python benchmarks/recipes.py --project ../other --recipes mlm --recipes retromae --starts scratch

Two starts: the project's backbone, and a small BERT with random weights, which has inherited nothing. Two budgets: the
same passages, and the processor time that `mlm` takes for them. Dev queries, several seeds. A cell that is done stays
done: its file lies in the folder of cells, so that a run that was stopped goes on, and more recipes or seeds add to it.
"""

import json
import os
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import typer
import yaml

ROOT = Path(__file__).parents[1]
RECIPES = ROOT / "stages" / "recipes"
MEASURES = ("RR@10", "R@100")
REFERENCE = "mlm"  # its time is the budget of the second column, and every other recipe is held against it
Budget = Literal["tokens", "time"]


@dataclass(frozen=True)
class Start:
    """A model to start from, and how long and how fast it learns."""

    name: str
    steps: int
    pretrain: dict[str, Any] = field(default_factory=dict)
    retriever: dict[str, Any] = field(default_factory=dict)


STARTS = {
    "backbone": Start(
        "backbone",
        24,
        {"batch": 32, "learning_rate": 1e-4, "new_parts": 10, "pooling": "mean"},
        {"steps": 24, "learning_rate": 5e-5, "group": 2, "depth": 50, "longest": 64},
    ),
    "scratch": Start(
        "scratch",
        240,
        {"batch": 32, "learning_rate": 1e-3, "pooling": "mean"},
        {"steps": 90, "learning_rate": 5e-4, "group": 2, "depth": 50, "longest": 64},
    ),
}
SCRATCH = {"layers": 4, "width": 128, "heads": 4, "vocabulary": 8000}


@dataclass(frozen=True)
class Cell:
    """One number of the table: a recipe from a start under a budget with a seed."""

    start: str
    recipe: str
    budget: Budget
    seed: int
    steps: int

    def path(self, folder: Path) -> Path:
        """Where its result lies."""
        return folder / f"{self.start}.{self.recipe}.{self.budget}.{self.seed}.json"


def measure(
    project: Annotated[Path, typer.Option(help="Project folder whose `dvc repro` has finished.")] = ROOT,
    recipes: Annotated[list[str] | None, typer.Option(help="By default every file of stages/recipes.")] = None,
    starts: Annotated[list[str], typer.Option(help="backbone, scratch")] = ["scratch", "backbone"],  # noqa: B006
    budgets: Annotated[list[str], typer.Option(help="tokens, time")] = ["tokens", "time"],  # noqa: B006
    seeds: Annotated[int, typer.Option(min=1, help="Seeds of each cell.")] = 3,
    workers: Annotated[int, typer.Option(min=1, help="Cells at a time, one core each.")] = os.cpu_count() or 1,
    cells: Annotated[Path, typer.Option(help="Folder of the cells.")] = Path(".isthmus/recipes"),
    out: Annotated[Path, typer.Option(help="JSON to write, and a Markdown table beside.")] = ROOT
    / "docs/results/recipes.json",
) -> None:
    """Fill the table."""
    cells.mkdir(parents=True, exist_ok=True)
    names = recipes or sorted(path.stem for path in RECIPES.glob("*.yaml"))
    os.environ["OMP_NUM_THREADS"] = "1"  # the workers', who are children
    with ProcessPoolExecutor(workers, get_context("spawn"), _alone, (cells.resolve(),)) as pool:
        list(pool.map(partial(prepare, project.resolve(), cells.resolve()), starts))
        for budget in budgets:
            wanted = [cell for seed in range(1, seeds + 1) for cell in _cells(starts, names, budget, seed, cells)]
            for done in pool.map(partial(fill, project.resolve(), cells.resolve()), wanted):
                print(done, flush=True)
                summary(cells, out)


def _cells(starts: list[str], names: list[str], budget: Any, seed: int, folder: Path) -> Iterator[Cell]:
    """The cells that are not filled yet, those of a start together."""
    for start in starts:
        for name in names:
            steps = STARTS[start].steps
            if budget == "time":
                if name in ("none", REFERENCE):
                    continue  # their first column is their second
                steps = max(2, round(steps * _seconds(folder, start, REFERENCE) / _seconds(folder, start, name)))
            cell = Cell(start, name, budget, seed, steps)
            if not cell.path(folder).exists():
                yield cell


def _seconds(folder: Path, start: str, recipe: str) -> float:
    """Processor seconds of pre-training, as the cells of the first budget took them."""
    found = [json.loads(path.read_text()) for path in folder.glob(f"{start}.{recipe}.tokens.*.json")]
    return float(np.mean([cell["pretraining_seconds"] for cell in found]))


def _alone(cells: Path) -> None:
    """A worker keeps its vectors and states where no other worker looks."""
    os.environ["ISTHMUS_SCRATCH"] = str(cells / f"worker-{os.getpid()}")
    os.environ["TQDM_DISABLE"] = "1"


def prepare(project: Path, cells: Path, start: str) -> None:
    """A start's model, and the tables that its tokenizer decides."""
    from stages.artifacts.files import whole
    from stages.backbone import backbone
    from stages.statistics import keywords, salience
    from stages.tokens import tokens

    folder = cells / start
    if folder.is_dir():
        return
    data = project / "data"
    with whole(folder) as made:
        if start == "scratch":
            backbone("scratch", made / "model", data / "passages.parquet", **SCRATCH)  # type: ignore[arg-type]
        else:
            backbone(str(project / "models/backbone"), made / "model")
        tokens(data / "passages.parquet", made / "model", made / "tokens.parquet")
        for name in ("doc2query", "continuations"):
            tokens(data / f"{name}.parquet", made / "model", made / f"{name}.parquet")
        keywords(made / "tokens.parquet", made / "keywords.parquet")
        salience(made / "tokens.parquet", made / "salience.parquet")


def fill(project: Path, cells: Path, cell: Cell) -> Cell:
    """Pre-train, fine-tune, rank the dev queries; write what each is worth."""
    from stages.artifacts.files import remove, whole

    data, given, work = project / "data", cells / cell.start, cells / f"work-{os.getpid()}"
    work.mkdir(exist_ok=True)
    seconds, tokens = _pretrain(cell, data, given, work)
    _finetune(cell, data, given, work)
    found = {"pretraining_seconds": seconds, "pretraining_tokens": tokens, "steps": cell.steps}
    found |= _values(data, given, work)
    with whole(cell.path(cells)) as half:
        half.write_text(json.dumps(found, sort_keys=True))
    remove(work)
    return cell


def _pretrain(cell: Cell, data: Path, given: Path, work: Path) -> tuple[float, float]:
    """Processor seconds, and real pieces read."""
    from stages.artifacts.documents import read_json
    from stages.pretraining import pretrain

    recipe = yaml.safe_load((RECIPES / f"{cell.recipe}.yaml").read_text()) or {}
    if "generator" in recipe:  # as long as the encoder's own training: a thousand steps would be most of the budget
        recipe["generator"] = (recipe["generator"] or {}) | {"steps": cell.steps}
    path = work / "recipe.yaml"
    path.write_text(yaml.safe_dump(recipe))
    clocks = time.process_time, time.monotonic
    began = [clock() for clock in clocks]
    pretrain(
        path,
        data / "passages.parquet",
        given / "tokens.parquet",
        given / "model",
        work / "encoder",
        work / "pretrain.json",
        keywords=given / "keywords.parquet",
        salience=given / "salience.parquet",
        doc2query=given / "doc2query.parquet",
        continuations=given / "continuations.parquet",
        steps=cell.steps,
        seed=cell.seed,
        checkpoint=1e9,
        **STARTS[cell.start].pretrain,
    )
    processor, wall = (clock() - start for clock, start in zip(clocks, began, strict=True))
    told = read_json(work / "pretrain.json")
    return processor, told["speed"]["tokens_per_second"] * wall if "speed" in told else 0.0


def _finetune(cell: Cell, data: Path, given: Path, work: Path) -> None:
    from stages.retriever import retriever

    tables = (given / "tokens.parquet", data / "queries.parquet", data / "qrels.parquet", data / "passages.parquet")
    retriever(
        work / "encoder",
        *tables,
        work / "retriever",
        work / "retriever.json",
        negatives=[data / "runs/bm25.parquet"],
        seed=cell.seed,
        checkpoint=1e9,
        **STARTS[cell.start].retriever,
    )


def _values(data: Path, given: Path, work: Path) -> dict[str, list[float]]:
    """What every dev query is worth, by measure."""
    from stages.artifacts.tables import Values
    from stages.evaluation import evaluate
    from stages.mining import mine

    run = work / "run.parquet"
    mine(work / "retriever", given / "tokens.parquet", data / "queries.parquet", run, splits=["dev"], depth=100)
    evaluate(
        run,
        data / "queries.parquet",
        data / "qrels.parquet",
        work / "evaluation.json",
        work / "values.parquet",
        work / "run.trec",
        measures=list(MEASURES),
        split="dev",
    )
    table = Values.read(work / "values.parquet").to_pylist()
    return {measure: [row["value"] for row in table if row["measure"] == measure] for measure in MEASURES}


def summary(cells: Path, out: Path) -> None:
    """Write the JSON and the table of all cells so far."""
    from stages.artifacts.documents import write_json
    from stages.measuring.significance import mean_interval, paired_p

    found: dict[tuple[str, str, str], list[dict[str, Any]]] = {}
    for path in sorted(cells.glob("*.*.*.*.json")):
        start, recipe, budget, _ = path.name.split(".", 3)
        found.setdefault((start, recipe, budget), []).append(json.loads(path.read_text()))
    report: dict[str, Any] = {}
    for (start, recipe, budget), seeds in found.items():
        row = {"seeds": len(seeds), "steps": seeds[0]["steps"]}
        row["pretraining_seconds"] = float(np.mean([cell["pretraining_seconds"] for cell in seeds]))
        reference = found.get((start, REFERENCE, "tokens"), [])[: len(seeds)]
        for measure in MEASURES:
            values = np.mean([cell[measure] for cell in seeds], axis=0)  # over seeds: queries are what is sampled
            mean, low, high = (float(one[0]) for one in mean_interval(values[:, None]))
            each = [float(np.mean(cell[measure])) for cell in seeds]
            row[measure] = {"mean": mean, "low": low, "high": high, "seeds_sd": float(np.std(each))}
            if reference and recipe != REFERENCE:
                less = values - np.mean([cell[measure] for cell in reference], axis=0)
                row[measure] |= {"above_reference": float(less.mean()), "p": float(paired_p(less[:, None])[0])}
        report.setdefault(start, {}).setdefault(recipe, {})[budget] = row
    write_json(out, report)
    out.with_suffix(".md").write_text("\n".join(_tables(report)) + "\n")


def _tables(report: dict[str, Any]) -> Iterator[str]:
    for start, recipes in report.items():
        yield f"## From {start}\n"
        yield f"| recipe | seeds | CPU s | RR@10, same passages | R@100 | RR@10, time of `{REFERENCE}` | R@100 |"
        yield "|---|---|---|---|---|---|---|"
        best = sorted(recipes, key=lambda name: -recipes[name].get("tokens", {}).get("RR@10", {}).get("mean", 0))
        for name in best:
            first = recipes[name].get("tokens", {})
            cells = [
                _shown(recipes[name].get(budget), measure) for budget in ("tokens", "time") for measure in MEASURES
            ]
            seconds = f"{first['pretraining_seconds']:.0f}" if first else ""
            yield f"| `{name}` | {first.get('seeds', '')} | {seconds} | {' | '.join(cells)} |"
        yield ""


def _shown(row: dict[str, Any] | None, measure: str) -> str:
    """``.512 [.450, .571] +.021 (p .03)``: the difference is from the reference."""
    if row is None:
        return ""
    value = row[measure]
    shown = f"{value['mean']:.3f} [{value['low']:.3f}, {value['high']:.3f}]"
    return shown + (f" {value['above_reference']:+.3f} (p {value['p']:.2g})" if "p" in value else "")


if __name__ == "__main__":
    typer.run(measure)
