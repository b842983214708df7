"""Encoder + a task of GLUE → how well it classifies, after fine-tuning by BERT's recipe."""

from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import typer

from stages.artifacts.checkpoints import load_encoder, load_tokenizer, load_vocabulary
from stages.artifacts.documents import write_json
from stages.artifacts.files import remove
from stages.artifacts.refusal import Refusal
from stages.artifacts.scratch import scratch
from stages.embedding.pieces import BUDGET, tokenised
from stages.training.loop import Plan, train
from stages.training.precision import Precision, resolved
from stages.training.processes import join
from stages.understanding.classifier import Batches, Classifier, Texts, predict
from stages.understanding.scores import score
from stages.understanding.tasks import TASKS, Examples, Task, read_examples


def glue(
    task: Annotated[
        Literal["cola", "sst-2", "mrpc", "sts-b", "qqp", "mnli", "qnli"], typer.Argument(help="Task of GLUE.")
    ],
    encoder: Annotated[Path, typer.Argument(help="Model folder to fine-tune; it stays as it is.")],
    training: Annotated[Path, typer.Option("--train", help="TSV file of training examples.")],
    dev: Annotated[list[Path], typer.Option(help="TSV files to measure on; several are also taken together.")],
    metrics: Annotated[Path, typer.Option(help="JSON file to write.")],
    epochs: Annotated[float, typer.Option(min=0.0, help="Passes over the training examples.")] = 3.0,
    batch: Annotated[int, typer.Option(min=1, help="Examples per step, over all processes.")] = 32,
    learning_rate: Annotated[float, typer.Option(min=0.0, help="Peak learning rate.")] = 2e-5,
    warmup: Annotated[float, typer.Option(min=0.0, max=1.0, help="Share of the steps that warm up.")] = 0.1,
    weight_decay: Annotated[float, typer.Option(min=0.0, help="AdamW's weight decay.")] = 0.01,
    dropout: Annotated[float, typer.Option(min=0.0, max=0.9, help="Dropout probability.")] = 0.1,
    longest: Annotated[int, typer.Option(min=8, help="Pieces of an example, special ones included.")] = 128,
    seed: Annotated[int, typer.Option(min=0, help="Seed of everything random.")] = 0,
    precision: Precision = "auto",
) -> None:
    """Fine-tune and measure: Matthews' correlation, accuracy, F1, or Pearson's and Spearman's."""
    precision = resolved(precision)
    settings = {name: value for name, value in locals().items() if isinstance(value, int | float | str)}
    if len({path.stem for path in dev}) < len(dev):
        raise Refusal(f"dev: {', '.join(map(str, dev))}: two have one name")
    kind, processes = TASKS[task], join()
    learned, measured = read_examples(training, kind), {path.stem: read_examples(path, kind) for path in dev}
    if processes.world > batch or batch > len(learned):
        raise Refusal(f"batch: {batch} is less than the processes or more than the {len(learned)} training examples")
    model = Classifier(load_encoder(encoder, dropout), len(kind.labels), dropout, seed)
    budget = BUDGET[processes.device.type]
    batches = Batches(_texts(learned, encoder, longest), batch, seed, budget, processes)
    steps = max(1, round(epochs * len(learned) / batch))
    plan = Plan(steps, learning_rate, round(warmup * steps), weight_decay=weight_decay, seed=seed, precision=precision)
    state = scratch("glue", settings, [encoder, training, *dev])
    report = train(model, batches, plan, processes, state, what=f"glue {task}")
    if processes.first:
        found = {
            name: predict(model, _texts(examples, encoder, longest), budget) for name, examples in measured.items()
        }
        skipped = learned.skipped + sum(examples.skipped for examples in measured.values())
        told = {"task": task, "steps": steps, "loss": report.last("loss"), "skipped_rows": skipped}
        write_json(metrics, told | _scores(kind, found, measured))
        remove(state)


def _texts(examples: Examples, encoder: Path, longest: int) -> Texts:
    tokenizer = load_tokenizer(encoder)
    columns = [tokenised(column, tokenizer) for column in examples.texts]
    return Texts(columns, examples.labels, load_vocabulary(encoder), longest)


def _scores(task: Task, found: dict[str, np.ndarray], measured: dict[str, Examples]) -> dict[str, Any]:
    """{"examples", "dev": {file: {measure: value}}}, with ``together`` for all files where there are several."""
    pairs = {name: (found[name], measured[name].labels) for name in found}
    if len(pairs) > 1:
        both = (np.concatenate([pair[i] for pair in pairs.values()]) for i in range(2))
        pairs["together"] = next(both), next(both)
    values = {
        name: {measure: score(measure, *pair) for measure in task.measures} | {"examples": len(pair[1])}
        for name, pair in pairs.items()
    }
    return {"dev": values}
