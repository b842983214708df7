"""How fast does each recipe train, and where does the time go?

    python benchmarks/pretraining.py data models/backbone --out pretraining.json
    python benchmarks/pretraining.py data models/backbone --shape base --longest 144 --batch 256 --precision bf16 \\
        --peak 989 --out gpu.json

Reads the data folder of a finished run. Every recipe and precision runs in a process of its own, on the GPU where
there is one. What stands in ``--out`` already is not measured again, unless with other settings.

Tokens are real ones that an encoder reads; seconds are of whole steps, optimiser included, after some to warm up.
The parts sum to 100 %: *encoder* is its forward and backward pass and the clipping of gradients, a decoder's part
both of its passes without the projection to the vocabulary, *data* the time that a step waits for its batch.
A generator is made, not trained first: what a step costs does not depend on what it has learnt.
"""

import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from copy import deepcopy
from dataclasses import asdict, dataclass, replace
from multiprocessing import get_context
from pathlib import Path
from typing import Annotated, Any, Literal

import torch
import typer
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import flop_registry

from stages.artifacts.attention import registered
from stages.artifacts.checkpoints import TextEncoder
from stages.artifacts.documents import read_json, write_json
from stages.bottleneck.autoencoder import Autoencoder
from stages.bottleneck.batches import Batches
from stages.bottleneck.recipe import Recipe, load_recipe
from stages.bottleneck.tables import WORTH, needed
from stages.bottleneck.texts import read_corpus
from stages.pretraining import Start, assembled, begin
from stages.training.loop import Plan, train
from stages.training.precision import autocast
from stages.training.processes import join

RECIPES = Path(__file__).parents[1] / "stages" / "recipes"
# real tokens/s measured with the released code on two cores of such a machine (6 layers, 384 wide, vocabulary 30,522,
# batch 32, fp32); RetroMAE reaches 590 where malloc is told not to return memory
RELEASED = {"mlm": 650, "retromae": 460, "dupmae": 390, "simlm": 170, "master": 100}
WARM = 2  # steps before the clock runs


@dataclass(frozen=True)
class Settings:
    """What all runs of one table have in common."""

    data: str
    backbone: str
    shape: str
    batch: int
    longest: int
    steps: int
    peak: float | None


def measure(
    data: Annotated[Path, typer.Argument(help="Data folder of a finished run.")],
    backbone: Annotated[Path, typer.Argument(help="Model folder to start from.")],
    out: Annotated[Path, typer.Option(help="JSON file to write, and to go on with.")],
    recipe: Annotated[list[str] | None, typer.Option(help="Recipes; all by default.")] = None,
    precision: Annotated[list[str], typer.Option(help="fp32 and bf16.")] = ["fp32", "bf16"],  # noqa: B006
    shape: Annotated[Literal["backbone", "base"], typer.Option(help="The model's, or BERT-base's, new.")] = "backbone",
    batch: Annotated[int, typer.Option(min=1, help="Passages per step.")] = 32,
    longest: Annotated[int, typer.Option(min=8, help="Pieces of a text, special ones included.")] = 128,
    steps: Annotated[int, typer.Option(min=1, help="Steps that are timed.")] = 10,
    peak: Annotated[float | None, typer.Option(help="The device's TFLOP/s, for the model FLOP utilisation.")] = None,
) -> None:
    """Print a table in Markdown."""
    settings = Settings(str(data), str(backbone), shape, batch, longest, steps, peak)
    known = read_json(out) if out.is_file() else {}
    runs = known["runs"] if known.get("settings") == asdict(settings) else {}
    names = recipe or [path.stem for path in sorted(RECIPES.glob("*.yaml")) if path.stem != "none"]
    for name in names:
        for kind in precision:
            if f"{name} {kind}" not in runs:
                with ProcessPoolExecutor(1, get_context("spawn")) as fresh:
                    runs[f"{name} {kind}"] = fresh.submit(run, settings, name, kind).result()
                write_json(out, {"settings": asdict(settings), "released": RELEASED, "runs": runs})
    print(table(settings, {key: runs[key] for key in runs if key.split()[0] in names}))


def run(settings: Settings, name: str, precision: str) -> dict[str, Any]:
    """One recipe in one precision."""
    recipe, processes = load_recipe(RECIPES / f"{name}.yaml"), join()
    if recipe.generator:
        recipe = replace(recipe, generator=replace(recipe.generator, steps=0))
    begun = started(settings, recipe)
    batches = batches_of(settings, recipe, begun)
    plan = Plan(WARM, 1e-4, precision=precision, checkpoint=float("inf"), log_every=10**9)
    with tempfile.TemporaryDirectory() as folder:
        model = assembled(recipe, begun, batches, plan, processes, Path(folder))
        train(model, batches, plan, processes, Path(folder) / "warm")
        flops = counted(model, batches, precision, processes.device) if settings.peak else 0
        clock = Clock(model, processes.device)
        whole = replace(plan, steps=settings.steps)
        report = train(model, lambda step: batches(step + WARM), whole, processes, Path(folder) / "timed")
    found = {
        "tokens/s": report.speed["tokens_per_second"],
        "seconds/step": report.seconds / settings.steps,
        "padding": batches.padding,
        "peak MiB": peak_memory(processes.device),
        "share": clock.shares(),
        "losses": {key: value for key, value in report.history[-1].items() if key.endswith("loss")},
    }
    if settings.peak:
        found["utilisation"] = flops / (report.seconds / settings.steps) / (settings.peak * 1e12)
    return found


def started(settings: Settings, recipe: Recipe) -> Start:
    """The backbone, or a new model of BERT-base's shape with its vocabulary."""
    begun = begin(recipe, Path(settings.backbone), 0.0, "cls")
    if settings.shape == "backbone":
        return begun
    from transformers.models.bert.configuration_bert import BertConfig
    from transformers.models.bert.modeling_bert import BertModel

    config = BertConfig(
        vocab_size=begun.encoder.config.vocab_size,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
        attn_implementation=registered(),
    )
    encoder = TextEncoder(BertModel(config, add_pooling_layer=False), "cls", normalise=False)
    return replace(begun, encoder=encoder, heads={}, teacher=deepcopy(encoder).eval() if recipe.taught else None)


def batches_of(settings: Settings, recipe: Recipe, begun: Start) -> Batches:
    """What a run of `pretrain` on that data folder would be given."""
    data = Path(settings.data)
    files = {name: data / f"{name}.parquet" for name in WORTH}
    files |= {"queries": data / "doc2query.tokens.parquet", "continuations": data / "continuations.tokens.parquet"}
    corpus = read_corpus(data / "passages.parquet", data / "tokens.parquet", needed(recipe, files, data))
    pieces = max(8192, settings.batch * settings.longest)
    return Batches(recipe, corpus, begun.vocabulary, settings.longest, settings.batch, pieces, 0, join())


class Clock:
    """Gives every moment of a training to one part; hangs itself into a model and the optimiser's hooks."""

    def __init__(self, model: Autoencoder, device: torch.device):
        self.device, self.part, self.spent = device, "", {}  # type: ignore[var-annotated]
        forward, read, losses, project = model.forward, model.read, model.losses, model.head.loss

        def passes(*given: Any) -> Any:
            self.to("encoder")  # reading, and behind the last loss the backward pass
            return forward(*given)

        def turns(*given: Any) -> Iterator[Any]:
            source = iter(losses(*given))
            while True:
                self.to("loss")  # its name is known when it is there
                found = next(source, None)
                if found is None:
                    self.part = "encoder"  # no further loss was being made
                    break
                self.to(found[0])
                self.spent[found[0]] = self.spent.get(found[0], 0.0) + self.spent.pop("loss", 0.0)
                yield found

        model.forward, model.losses = passes, turns  # type: ignore[method-assign, assignment]
        model.read = self.around("encoder", read)  # type: ignore[method-assign]
        model.head.loss = self.around("projection", project)  # type: ignore[method-assign]
        register_optimizer_step_pre_hook(lambda *_: self.to("optimiser"))
        register_optimizer_step_post_hook(lambda *_: self.to("data"))
        self.began = self.now()

    def now(self) -> float:
        """Seconds, when the device has done what it was told."""
        if self.device.type == "cuda":
            torch.cuda.synchronize()
        return time.perf_counter()

    def to(self, part: str) -> None:
        """From now on time is this part's."""
        now = self.now()
        if self.part:
            self.spent[self.part] = self.spent.get(self.part, 0.0) + now - self.began
        self.part, self.began = part, now

    def around(self, part: str, call: Callable[..., Any]) -> Callable[..., Any]:
        """A function whose time is one part's."""

        def timed(*given: Any, **named: Any) -> Any:
            before = self.part
            self.to(part)
            try:
                return call(*given, **named)
            finally:
                self.to(before)

        return timed

    def shares(self) -> dict[str, float]:
        """Part → share of the time so far."""
        total = sum(self.spent.values())
        return {part: spent / total for part, spent in self.spent.items()}


class Operations(TorchDispatchMode):
    """Adds up the floating-point operations of matrix products; torch's own counter does not bear nested gradients."""

    total = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        count = flop_registry.get(func._overloadpacket)
        self.total += count(*args, **(kwargs or {}), out_val=out) if count else 0
        return out


def counted(model: Autoencoder, batches: Batches, precision: str, device: torch.device) -> float:
    """Floating-point operations of one step, both passes."""
    with Operations() as operations:
        for part in batches(0):
            with autocast(device, precision):
                loss, _ = model(part.to(device), part.counts)
            loss.backward()
    model.zero_grad()
    return float(operations.total)


def peak_memory(device: torch.device) -> float:
    """MiB: the GPU's, or this process's."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated() / 2**20
    status = Path("/proc/self/status").read_text()
    return int(status.split("VmHWM:")[1].split()[0]) / 1024


def table(settings: Settings, runs: dict[str, dict[str, Any]]) -> str:
    """Markdown."""
    lines = [
        f"batch {settings.batch}, longest {settings.longest}, shape of {settings.shape}, {settings.steps} steps",
        "",
        "| recipe | tokens/s | released | × | padding | peak MiB | FLOP util. "
        "| encoder | projection | optimiser | data | each loss without projection |",
        "|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---|",
    ]
    for name, found in runs.items():
        share = dict(found["share"])
        fixed = [f"{share.pop(part, 0.0):.0%}" for part in ("encoder", "projection", "optimiser", "data")]
        released = RELEASED.get(name.split()[0]) if settings.shape == "backbone" else None
        cells = [
            name,
            f"{found['tokens/s']:,.0f}",
            str(released or ""),
            f"{found['tokens/s'] / released:.1f}" if released else "",
            f"{found['padding']:.1%}",
            f"{found['peak MiB']:,.0f}",
            f"{found['utilisation']:.0%}" if "utilisation" in found else "",
            *fixed,
            ", ".join(f"{part} {value:.0%}" for part, value in share.items()),
        ]
        lines.append(f"| {' | '.join(cells)} |")
    lines += [
        "",
        "released: real tokens/s measured with the released code on two cores, 6 layers × 384, batch 32, fp32",
    ]
    return "\n".join(lines)


if __name__ == "__main__":
    typer.run(measure)
