"""What is each recipe worth here? Pre-training under one budget, then Retriever 1 on the same pairs.

    python -m benchmarks.recipes                                  # in a project whose `dvc repro` has finished
    python -m benchmarks.recipes --project ../other --corpus medquad --recipes mlm --recipes retromae --starts scratch

Two starts: the project's backbone, and a small BERT with random weights, which has inherited nothing. Two budgets: the
same passages, and the processor time that `mlm` takes for them. Dev queries, several seeds. A cell that is done stays
done: docs/results/recipes.json holds every query's value, so that a stopped run goes on, and more recipes, seeds or
corpora add to it.
"""

import os
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict, dataclass, field
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Annotated, Any

import typer
import yaml

from benchmarks.cells import MEASURES, REFERENCE, Cell, Cells, Worth

ROOT = Path(__file__).parents[1]
RECIPES = ROOT / "stages" / "recipes"
NUMBERS = {"precision": "fp32"}  # alike on every machine that adds cells


@dataclass(frozen=True)
class Start:
    """A model to start from, and how long and how fast it learns."""

    steps: int
    pretrain: dict[str, Any] = field(default_factory=dict)
    retriever: dict[str, Any] = field(default_factory=dict)


STARTS = {
    "backbone": Start(
        24,
        {"batch": 32, "learning_rate": 1e-4, "new_parts": 10, "pooling": "mean", **NUMBERS},
        {"steps": 24, "learning_rate": 5e-5, "group": 2, "depth": 50, "longest": 64, **NUMBERS},
    ),
    "scratch": Start(
        240,
        {"batch": 32, "learning_rate": 1e-3, "pooling": "mean", **NUMBERS},
        {"steps": 90, "learning_rate": 5e-4, "group": 2, "depth": 50, "longest": 64, **NUMBERS},
    ),
}
SCRATCH = {"layers": 4, "width": 128, "heads": 4, "vocabulary": 8000}


def measure(
    project: Annotated[Path, typer.Option(help="Project folder whose `dvc repro` has finished.")] = ROOT,
    corpus: Annotated[str, typer.Option(help="What the table calls the project's corpus.")] = "docstrings",
    recipes: Annotated[list[str] | None, typer.Option(help="By default every file of stages/recipes.")] = None,
    starts: Annotated[list[str], typer.Option(help=", ".join(STARTS))] = list(STARTS),  # noqa: B006
    budgets: Annotated[list[str], typer.Option(help="tokens, time")] = ["tokens", "time"],  # noqa: B006
    seeds: Annotated[int, typer.Option(min=1, help="Seeds of each cell.")] = 3,
    workers: Annotated[int, typer.Option(min=1, help="Cells at a time, one core each.")] = os.cpu_count() or 1,
    work: Annotated[Path, typer.Option(help="Folder for models and tables on the way.")] = Path(".isthmus/recipes"),
    out: Annotated[Path, typer.Option(help="JSON to go on with, and a Markdown table beside.")] = ROOT
    / "docs/results/recipes.json",
) -> None:
    """Fill the table."""
    cells = Cells(out, {name: asdict(start) for name, start in STARTS.items()} | {"model": SCRATCH})
    names = recipes or sorted(path.stem for path in RECIPES.glob("*.yaml"))
    folder = work.resolve() / corpus
    folder.mkdir(parents=True, exist_ok=True)
    os.environ["OMP_NUM_THREADS"] = "1"  # the workers', who are children
    with ProcessPoolExecutor(workers, get_context("spawn"), _alone, (folder,)) as pool:
        list(pool.map(partial(prepare, project.resolve(), folder), starts))
        for budget in budgets:
            every = ((start, name, seed) for seed in range(1, seeds + 1) for start in starts for name in names)
            wanted = list(_missing(cells, corpus, budget, every))
            filled = {pool.submit(fill, project.resolve(), folder, cell): cell for cell in wanted}
            for done in as_completed(filled):
                cells.add(filled[done], done.result())
                print(*filled[done].key, flush=True)


def _missing(cells: Cells, corpus: str, budget: Any, every: Iterable[tuple[str, str, int]]) -> Iterator[Cell]:
    """The cells that are not filled yet."""
    for start, name, seed in every:
        steps = STARTS[start].steps
        if budget == "time":
            if name in ("none", REFERENCE):
                continue  # their first column is their second
            share = cells.seconds(corpus, start, REFERENCE) / cells.seconds(corpus, start, name)
            steps = max(2, round(steps * share))
        cell = Cell(corpus, start, name, budget, seed, steps)
        if cell.key not in cells.found:
            yield cell


def _alone(folder: Path) -> None:
    """A worker keeps its vectors and states where no other worker looks."""
    os.environ["ISTHMUS_SCRATCH"] = str(folder / f"worker-{os.getpid()}")
    os.environ["TQDM_DISABLE"] = "1"


def prepare(project: Path, folder: Path, start: str) -> None:
    """A start's model, and the tables that its tokenizer decides."""
    from stages.artifacts.files import whole
    from stages.backbone import backbone
    from stages.statistics import keywords, salience
    from stages.tokens import tokens

    ready = folder / start
    if ready.is_dir():
        return
    data = project / "data"
    with whole(ready) as made:
        if start == "scratch":
            backbone("scratch", made / "model", data / "passages.parquet", **SCRATCH)  # type: ignore[arg-type]
        else:
            backbone(str(project / "models/backbone"), made / "model")
        tokens(data / "passages.parquet", made / "model", made / "tokens.parquet")
        for name in ("doc2query", "continuations"):
            tokens(data / f"{name}.parquet", made / "model", made / f"{name}.parquet")
        keywords(made / "tokens.parquet", made / "keywords.parquet")
        salience(made / "tokens.parquet", made / "salience.parquet")


def fill(project: Path, folder: Path, cell: Cell) -> Worth:
    """Pre-train, fine-tune, rank the dev queries."""
    from stages.artifacts.files import remove

    data, given, work = project / "data", folder / cell.start, folder / f"work-{os.getpid()}"
    work.mkdir(exist_ok=True)
    seconds, tokens = _pretrain(cell, data, given, work)
    _finetune(cell, data, given, work)
    worth = Worth(seconds, tokens, _values(data, given, work))
    remove(work)
    return worth


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
    mine(
        work / "retriever",
        given / "tokens.parquet",
        data / "queries.parquet",
        run,
        splits=["dev"],
        depth=100,
        **NUMBERS,
    )
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


if __name__ == "__main__":
    typer.run(measure)
