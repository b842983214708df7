"""Encoding, retriever training, pair scoring and mining: how fast, beside sentence-transformers in the same run.

    python benchmarks/retriever.py data models/backbone --reranker models/reranker --out retriever.json

Reads the data folder of a finished run; needs the extra `bench`. Every measurement runs in a process of its own. In a
round ours and theirs take turns on the same texts, and the next round begins with the other one, so that a noisy
machine harms both alike; what counts is the median of the rounds' ratios. What stands in ``--out`` already is not
measured again, unless with other settings.

Tokens are real ones, padding not counted. Seconds hold everything from texts to vectors, scores or updated weights,
tokenising included; reading the models and the first batches do not count. Each side has its own defaults: theirs
trains with the dropout that the model's configuration states, ours with none, so theirs is also measured *plain*,
without dropout. *best* sets our bf16 against their fp32, which is what each does without being told.

Mining is an exact search among kept vectors (random ones of length 1: its cost does not depend on what they hold)
beside ``util.semantic_search``. Its memory is what the process itself holds more than before it opened the vectors;
pages of mapped files, which the system may drop, do not count. *kept* ranks the corpus twice: the second time nothing
should be left to encode.
"""

import os
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from importlib.metadata import version
from multiprocessing import get_context
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import torch
import typer
from torch import nn

from stages.artifacts.checkpoints import load_encoder, load_tokenizer, load_vocabulary, quiet
from stages.artifacts.documents import read_json, write_json
from stages.artifacts.judgements import asked
from stages.artifacts.ragged import Ragged
from stages.artifacts.refusal import Refusal
from stages.artifacts.scratch import HOME, content_hash
from stages.artifacts.tables import Passages
from stages.embedding.pieces import tokenised
from stages.embedding.probe import normalised
from stages.embedding.vectors import encode_rows
from stages.ranking import crossencoder, encoding
from stages.ranking.biencoder import UNCACHED, Batches, Retriever
from stages.ranking.corpus import Corpus, Reading, vectorised
from stages.ranking.crossencoder import Pairs, score
from stages.ranking.encoding import SHARD, Vectors
from stages.ranking.groups import Groups, Inputs, Rules, read_groups
from stages.ranking.objective import Objective
from stages.ranking.sampling import Sampler
from stages.ranking.search import Index, best_backend
from stages.ranking.towers import Shape, load_towers
from stages.training.loop import Plan, train
from stages.training.processes import join

# sentence-transformers 6.2 on two cores of such a machine, 6 layers × 384, 128 pieces: tokens/s, pairs/s
PUBLISHED = {"encode fp32": 6750, "encode bf16": 11300, "train fp32": 1440, "pairs fp32": 44}
AIMS = {"encode fp32": 1.05, "encode bf16": 1.05, "train fp32": 1.5, "train best": 2.5, "pairs best": 2.0}
SIDES = {
    "encode": ("ours", "theirs"),
    "train": ("ours", "theirs", "plain"),
    "pairs": ("ours", "theirs"),
    "search": ("ours", "theirs"),
    "kept": ("ours",),
}
DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16}
LIKE = 32  # texts that are encoded, and pairs that are scored, before the clock runs
PER_QUERY = 8  # pairs of a query
WARM = 2  # steps before the clock runs
RATE = 2e-5
TICK = 0.002  # seconds between two looks at memory
Measured = dict[str, float]


@dataclass(frozen=True)
class Settings:
    """What all measurements of one file have in common."""

    data: str
    backbone: str
    reranker: str
    texts: int
    longest: int
    batch: int
    steps: int
    pairs: int
    queries: int
    depth: int


@dataclass(frozen=True)
class Triplets:
    """Queries, a positive and a hard negative of each, and the number that equal passages share."""

    queries: list[str]
    positives: list[str]
    negatives: list[str]
    same: np.ndarray


def measure(
    data: Annotated[Path, typer.Argument(help="Data folder of a finished run.")],
    backbone: Annotated[Path, typer.Argument(help="Model folder that encodes and is trained.")],
    out: Annotated[Path, typer.Option(help="JSON file to write, and to go on with.")],
    reranker: Annotated[Path | None, typer.Option(help="Cross-encoder; default: the backbone, a new head.")] = None,
    rounds: Annotated[int, typer.Option(min=1, help="How often everything is measured.")] = 3,
    tasks: Annotated[list[str], typer.Option(help="encode, train, pairs, search, kept")] = list(SIDES),  # noqa: B006
    precision: Annotated[list[str], typer.Option(help="fp32 and bf16.")] = ["fp32", "bf16"],  # noqa: B006
    texts: Annotated[int, typer.Option(min=1, help="Passages that are encoded.")] = 1000,
    longest: Annotated[int, typer.Option(min=8, help="Pieces of a text or pair, special ones included.")] = 128,
    batch: Annotated[int, typer.Option(min=2, help="Queries of a training step.")] = 32,
    steps: Annotated[int, typer.Option(min=1, help="Training steps that are timed.")] = 10,
    pairs: Annotated[int, typer.Option(min=1, help="Pairs that are scored.")] = 512,
    queries: Annotated[int, typer.Option(min=1, help="Queries of the search.")] = 2000,
    passages: Annotated[list[int], typer.Option(min=1, help="Passages of the search, several sizes.")] = [  # noqa: B006
        4_000,
        16_000,
        64_000,
        256_000,
    ],
    depth: Annotated[int, typer.Option(min=1, help="Passages that a query finds.")] = 200,
) -> None:
    """Print two tables in Markdown, and write one beside the JSON."""
    unknown = [task for task in tasks if task not in SIDES]
    if unknown:
        raise typer.BadParameter(f"{unknown[0]}: there are {', '.join(SIDES)}", param_hint="--tasks")
    sizes = texts, longest, batch, steps, pairs, queries, depth
    settings = Settings(str(data), str(backbone), str(reranker or backbone), *sizes)
    about = {"settings": asdict(settings), "machine": machine()}
    known = read_json(out) if out.is_file() else {}
    runs = known["runs"] if {name: known.get(name) for name in about} == about else {}
    for round_ in range(rounds):
        for key in turns(tasks, precision, passages, round_):
            if len(runs.setdefault(key, [])) <= round_:
                runs[key].append(alone(settings, key))
                write_json(out, about | {"published": PUBLISHED, "runs": runs})
    shown = table(settings, runs)
    out.with_suffix(".md").write_text(shown + "\n", encoding="utf-8")
    print(shown)


def machine() -> dict[str, Any]:
    """What the figures hang on beside the settings."""
    names = "torch", "transformers", "sentence-transformers"
    device = torch.cuda.get_device_name() if torch.cuda.is_available() else "cpu"
    return {"device": device, "threads": torch.get_num_threads()} | {name: version(name) for name in names}


def turns(tasks: list[str], precision: list[str], passages: list[int], round_: int) -> Iterator[str]:
    """The measurements of a round in their order: ``encode fp32 ours``, …; every other round backwards in each."""
    variants = {"search": [str(size) for size in passages], "kept": ["bf16"]}
    for task in tasks:
        for variant in variants.get(task, precision):
            yield from (f"{task} {variant} {side}" for side in SIDES[task][:: -1 if round_ % 2 else 1])


def alone(settings: Settings, key: str) -> Measured:
    """One measurement in a fresh process whose kept vectors nobody else sees."""
    with (
        tempfile.TemporaryDirectory() as folder,
        ProcessPoolExecutor(1, get_context("spawn"), _elsewhere, (folder,)) as process,
    ):
        return process.submit(run, settings, key).result()


def _elsewhere(folder: str) -> None:
    os.environ[HOME] = folder
    quiet()


def run(settings: Settings, key: str) -> Measured:
    """One measurement by its name."""
    task, variant, side = key.split()
    return CALLS[task, side](settings, variant)


def passages_of(settings: Settings) -> list[str]:
    """The texts of random passages, always the same."""
    texts = Passages.read(Path(settings.data) / "passages.parquet", ["text"])["text"]
    rows = np.random.default_rng(0).permutation(len(texts))[: settings.texts]
    return texts.take(rows).to_pylist()  # type: ignore[no-any-return]


def real_tokens(settings: Settings, texts: list[str]) -> int:
    """Pieces of texts, cut and with special ones."""
    lengths = tokenised(texts, load_tokenizer(settings.backbone)).lengths
    return int((np.minimum(lengths, settings.longest - 2) + 2).sum())


def encode_ours(settings: Settings, precision: str) -> Measured:
    """Texts to vectors as the stages make them."""
    encoder = encoding.for_inference(settings.backbone, precision, join().device)
    tokenizer, vocabulary = load_tokenizer(settings.backbone), load_vocabulary(settings.backbone)

    def encode(texts: list[str]) -> np.ndarray:
        pieces = tokenised(texts, tokenizer)
        return encode_rows(encoder, pieces, np.arange(len(texts)), vocabulary, settings.longest)

    return encoded(settings, encode)


def encode_theirs(settings: Settings, precision: str) -> Measured:
    """Texts to vectors by ``SentenceTransformer.encode``."""
    model = sentence_transformer(settings, {"dtype": DTYPES[precision]})
    return encoded(settings, lambda texts: model.encode(texts, show_progress_bar=False))


def encoded(settings: Settings, encode: Callable[[list[str]], np.ndarray]) -> Measured:
    """Real tokens per second."""
    texts = passages_of(settings)
    encode(texts[:LIKE])
    began = time.perf_counter()
    encode(texts)
    seconds = time.perf_counter() - began
    return {"rate": real_tokens(settings, texts) / seconds, "seconds": seconds}


def sentence_transformer(settings: Settings, model: dict[str, Any], config: dict[str, Any] | None = None) -> Any:
    """The backbone as sentence-transformers reads it."""
    from sentence_transformers import SentenceTransformer

    device = join().device.type
    found = SentenceTransformer(settings.backbone, device=device, model_kwargs=model, config_kwargs=config)
    found.max_seq_length = settings.longest
    return found


def groups_of(settings: Settings) -> tuple[list[str], list[str], Groups]:
    """The texts of training queries and of passages, and BM25's negatives of the queries that have a positive."""
    data = Path(settings.data)
    tables = (data / f"{name}.parquet" for name in ("tokens", "queries", "qrels", "passages", "runs/bm25"))
    asking, _, groups = read_groups(Inputs(*tables), Rules(1, 50), 0, 1.0)
    if not groups.negatives.lengths.any():
        raise Refusal(f"{data / 'runs/bm25.parquet'}: no negatives")
    passages = Passages.read(data / "passages.parquet", ["text"])["text"].to_pylist()
    return asking.texts, passages, groups


def triplets_of(settings: Settings) -> Triplets:
    """A query, a positive and a hard negative for every place of the batches, no passage twice while others are left.

    Where a text stands twice in a batch, ours would read it once and theirs twice.
    """
    asking, passages, groups = groups_of(settings)
    usable = np.flatnonzero(groups.negatives.lengths)[: (WARM + settings.steps) * settings.batch]
    taken: set[int] = set()
    positives = [fresh(groups.positives, group, taken) for group in usable]
    negatives = [fresh(groups.negatives, group, taken) for group in usable]
    texts = [passages[row] for row in positives], [passages[row] for row in negatives]
    queries = [asking[row] for row in groups.queries[usable]]
    return Triplets(queries, *texts, groups.same[positives + negatives])


def fresh(rows: Ragged, group: int, taken: set[int]) -> int:
    """The first of a group's rows that is not taken yet, else its first; it is taken then."""
    pool: list[int] = rows.take(np.array([group])).values.tolist()
    chosen = next((row for row in pool if row not in taken), pool[0])
    taken.add(chosen)
    return chosen


def train_ours(settings: Settings, precision: str) -> Measured:
    """Training steps as `stages.retriever` takes them."""
    triplets, processes, towers = triplets_of(settings), join(), load_towers(Path(settings.backbone), Shape())
    began = time.perf_counter()
    batches = batches_of(settings, triplets)
    tokenising = time.perf_counter() - began
    model = Retriever(towers, processes, Objective(50.0))
    plan = Plan(WARM, RATE, precision=precision, checkpoint=float("inf"), log_every=10**9)
    with tempfile.TemporaryDirectory() as folder:
        train(model, batches, plan, processes, Path(folder) / "warm")
        whole = replace(plan, steps=settings.steps)
        report = train(model, lambda step: batches(step + WARM), whole, processes, Path(folder) / "timed")
    seconds = report.seconds + tokenising
    return {"rate": report.tokens / seconds, "seconds": seconds, "loss": report.last("loss")}


def batches_of(settings: Settings, triplets: Triplets) -> Batches:
    """Our batches of triplets."""
    tokenizer, vocabulary = load_tokenizer(settings.backbone), load_vocabulary(settings.backbone)
    count = len(triplets.queries)
    own, every = np.arange(count), np.arange(count + 1)
    groups = Groups(own, Ragged(own, every), Ragged(count + own, every), triplets.same)
    queries = tokenised(triplets.queries, tokenizer)
    passages = tokenised(triplets.positives + triplets.negatives, tokenizer)
    limits = settings.longest, settings.longest, UNCACHED
    return Batches(Sampler(groups, settings.batch, 2, 0), queries, passages, vocabulary, *limits, join())


def train_theirs(settings: Settings, precision: str) -> Measured:
    """Training steps by their trainer, with the dropout that the configuration states."""
    return trained(settings, sentence_transformer(settings, {"dtype": torch.float32}), precision)


def train_plain(settings: Settings, precision: str) -> Measured:
    """Training steps by their trainer, without dropout."""
    none = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    return trained(settings, sentence_transformer(settings, {"dtype": torch.float32}, none), precision)


def trained(settings: Settings, model: Any, precision: str) -> Measured:
    """Real tokens per second of ``SentenceTransformerTrainer`` with ``MultipleNegativesRankingLoss``."""
    from datasets import Dataset  # type: ignore[import-untyped]
    from sentence_transformers import SentenceTransformerTrainer, SentenceTransformerTrainingArguments
    from sentence_transformers.sentence_transformer.losses import MultipleNegativesRankingLoss
    from transformers import TrainerCallback

    triplets, stops = triplets_of(settings), Stops(model)

    class Clock(TrainerCallback):  # type: ignore[misc]
        def on_step_end(self, args: Any, state: Any, control: Any, **rest: Any) -> None:
            stops.stop()

    columns = {"anchor": triplets.queries, "positive": triplets.positives, "negative": triplets.negatives}
    with tempfile.TemporaryDirectory() as folder:
        arguments = SentenceTransformerTrainingArguments(
            output_dir=folder,
            max_steps=WARM + settings.steps,
            per_device_train_batch_size=settings.batch,
            learning_rate=RATE,
            bf16=precision == "bf16",
            use_cpu=join().device.type == "cpu",
            dataloader_drop_last=True,
            dataloader_pin_memory=False,
            save_strategy="no",
            logging_strategy="no",
            report_to="none",
            disable_tqdm=True,
        )
        loss, data = MultipleNegativesRankingLoss(model), Dataset.from_dict(columns)
        SentenceTransformerTrainer(model, arguments, data, loss=loss, callbacks=[Clock()]).train()
    return stops.found()


class Stops:
    """When each step of a training ended, and how many real tokens the model had then read."""

    def __init__(self, model: Any):
        self.model, self.read, self.at = model, 0, []  # type: ignore[var-annotated]
        model[0].register_forward_pre_hook(self._count)

    def _count(self, module: nn.Module, given: tuple[dict[str, torch.Tensor], ...]) -> None:
        self.read += int(given[0]["attention_mask"].sum())

    def stop(self) -> None:
        """A step has ended."""
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        self.at.append((time.perf_counter(), self.read))

    def found(self) -> Measured:
        """Real tokens per second after the steps that warm up."""
        (began, before), (ended, after) = self.at[WARM - 1], self.at[-1]
        return {"rate": (after - before) / (ended - began), "seconds": ended - began}


def pairs_of(settings: Settings) -> tuple[list[str], list[str], np.ndarray, np.ndarray]:
    """Texts of queries and passages, and the rows of each that make a pair: BM25's best for some queries."""
    asking, passages, groups = groups_of(settings)
    owners = np.repeat(np.arange(len(groups)), groups.negatives.lengths)
    early = np.arange(len(owners)) - groups.negatives.offsets[owners] < PER_QUERY
    kept = np.flatnonzero(early)[: settings.pairs]
    queries, query = np.unique(groups.queries[owners[kept]], return_inverse=True)
    rows, passage = np.unique(groups.negatives.values[kept], return_inverse=True)
    return [asking[row] for row in queries], [passages[row] for row in rows], query, passage


def pairs_ours(settings: Settings, precision: str) -> Measured:
    """Pairs scored as `stages.rescoring` does; a text that stands in several pairs is tokenised once."""
    model = crossencoder.for_inference(settings.reranker, precision, join().device)
    tokenizer, vocabulary = load_tokenizer(settings.reranker), load_vocabulary(settings.reranker)

    def scored(queries: list[str], passages: list[str], query: np.ndarray, passage: np.ndarray) -> np.ndarray:
        pieces = tokenised(queries, tokenizer), tokenised(passages, tokenizer)
        pairs = Pairs(*pieces, vocabulary, settings.longest, settings.longest // 2)
        return score(model, pairs, query, passage)

    return paired(settings, scored)


def pairs_theirs(settings: Settings, precision: str) -> Measured:
    """Pairs scored by ``CrossEncoder.predict``."""
    from sentence_transformers import CrossEncoder

    options: dict[str, Any] = {"max_length": settings.longest, "device": join().device.type, "num_labels": 1}
    model = CrossEncoder(settings.reranker, model_kwargs={"dtype": DTYPES[precision]}, **options)

    def scored(queries: list[str], passages: list[str], query: np.ndarray, passage: np.ndarray) -> np.ndarray:
        pairs = [(queries[i], passages[j]) for i, j in zip(query, passage, strict=True)]
        return np.asarray(model.predict(pairs, activation_fn=nn.Identity(), show_progress_bar=False))

    return paired(settings, scored)


def paired(settings: Settings, scored: Callable[..., np.ndarray]) -> Measured:
    """Pairs per second."""
    queries, passages, query, passage = pairs_of(settings)
    scored(queries, passages, query[:LIKE], passage[:LIKE])
    began = time.perf_counter()
    scores = scored(queries, passages, query, passage)
    seconds = time.perf_counter() - began
    return {"rate": len(query) / seconds, "seconds": seconds, "mean score": float(scores.mean())}


def vectors_of(settings: Settings, count: int, folder: Path) -> tuple[np.ndarray, list[Path]]:
    """Random queries, and the files of random passages of length 1, as a kept set of vectors holds them."""
    width, files = load_encoder(settings.backbone).width, []
    rng = np.random.default_rng(0)
    for start in range(0, count, SHARD):
        shard = normalised(rng.standard_normal((min(SHARD, count - start), width), dtype=np.float32))
        files.append(folder / f"{start:08d}.npy")
        np.save(files[-1], shard)
    return normalised(rng.standard_normal((settings.queries, width), dtype=np.float32)), files


def search_ours(settings: Settings, passages: str) -> Measured:
    """Exact search as `stages.mining` does it."""

    def ready(files: list[Path]) -> Callable[[np.ndarray], np.ndarray]:
        vectors = Vectors([np.load(file, mmap_mode="r") for file in files], size=SHARD)
        index = Index(vectors, np.arange(len(vectors)), best_backend())
        return lambda queries: np.concatenate(
            [rows for _, rows, _ in index.search(Vectors.of(queries), settings.depth)]
        )

    return searched(settings, int(passages), ready)


def search_theirs(settings: Settings, passages: str) -> Measured:
    """``util.semantic_search`` over the vectors in memory."""
    from sentence_transformers.util import dot_score, semantic_search

    def ready(files: list[Path]) -> Callable[[np.ndarray], np.ndarray]:
        corpus = torch.from_numpy(np.concatenate([np.load(file) for file in files]).astype(np.float32))

        def search(queries: np.ndarray) -> np.ndarray:
            hits = semantic_search(torch.from_numpy(queries), corpus, top_k=settings.depth, score_function=dot_score)
            return np.array([[hit["corpus_id"] for hit in row] for row in hits])

        return search

    return searched(settings, int(passages), ready)


def searched(
    settings: Settings, passages: int, ready: Callable[[list[Path]], Callable[[np.ndarray], np.ndarray]]
) -> Measured:
    """Seconds of a search, growth of memory from before the vectors were opened, a number for what was found."""
    with tempfile.TemporaryDirectory() as folder:
        queries, files = vectors_of(settings, passages, Path(folder))
        ready(files[:1])(queries[:1])  # what is loaded at the first search is not of the search
        with growth() as held:
            search = ready(files)
            began = time.perf_counter()
            found = search(queries)
            seconds = time.perf_counter() - began
    return {"seconds": seconds, "growth MiB": max(held), "mean row": float(found.mean())}


@contextmanager
def growth() -> Iterator[list[float]]:
    """MiB of anonymous memory beyond what was held at first, looked at all the time."""
    first, over, held = anonymous(), threading.Event(), [0.0]

    def watch() -> None:
        while not over.wait(TICK):
            held.append(anonymous() - first)

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        yield held
    finally:
        over.set()
        watcher.join()


def anonymous() -> float:
    """MiB that this process holds and no file backs."""
    status = Path("/proc/self/status").read_text()
    return int(status.split("RssAnon:")[1].split()[0]) / 1024


def kept(settings: Settings, precision: str) -> Measured:
    """The corpus ranked for the training queries twice: seconds, and shards encoded, of each time."""
    data, processes, out = Path(settings.data), join(), {}
    whole, asking = Corpus.read(data / "tokens.parquet"), asked(data / "queries.parquet", ["train"])
    some = np.arange(min(settings.texts, len(whole.ids)))
    corpus = Corpus(whole.ids.slice(0, len(some)), whole.pieces.take(some), whole.path)
    reading, texts = Reading(settings.longest, settings.longest, precision), content_hash(data / "queries.parquet")
    with tempfile.TemporaryDirectory() as folder:
        for time_ in ("first", "second"):
            began = time.perf_counter()
            found = vectorised(Path(settings.backbone), corpus, asking, texts, reading, processes)
            found.search(corpus.ids, Path(folder) / "run.parquet", asking, settings.depth)
            out[f"{time_} seconds"] = time.perf_counter() - began
            out[f"{time_} encoded shards"] = found.passages.fresh + found.questions.fresh  # type: ignore[attr-defined]
    return out


CALLS: dict[tuple[str, str], Callable[[Settings, str], Measured]] = {
    ("encode", "ours"): encode_ours,
    ("encode", "theirs"): encode_theirs,
    ("train", "ours"): train_ours,
    ("train", "theirs"): train_theirs,
    ("train", "plain"): train_plain,
    ("pairs", "ours"): pairs_ours,
    ("pairs", "theirs"): pairs_theirs,
    ("search", "ours"): search_ours,
    ("search", "theirs"): search_theirs,
    ("kept", "ours"): kept,
}


def table(settings: Settings, runs: dict[str, list[Measured]]) -> str:
    """Markdown: speeds, then mining."""
    lines = [
        f"{settings.texts} texts, {settings.longest} pieces, {settings.steps} steps of {settings.batch} queries, "
        f"{settings.pairs} pairs; medians of the rounds, × the median of their ratios (least – most)",
        "",
        "| what | ours | theirs | × | aim | theirs, published |",
        "|---|---:|---:|---:|---:|---:|",
        *(line for task, unit in UNITS.items() for line in _speeds(task, unit, runs)),
        "",
        f"{settings.queries} queries, depth {settings.depth}",
        "",
        "| search | seconds, ours | theirs | × | MiB more, ours | theirs |",
        "|---|---:|---:|---:|---:|---:|",
        *_searches(runs),
    ]
    for key in (key for key in runs if key.startswith("kept")):
        seconds = (f"{median([one[f'{time_} seconds'] for one in runs[key]]):.1f}" for time_ in ("first", "second"))
        shards = (str(max(int(one[f"{time_} encoded shards"]) for one in runs[key])) for time_ in ("first", "second"))
        lines += [
            "",
            f"the corpus ranked twice: {' s, then '.join(seconds)} s; shards encoded {', then '.join(shards)}",
        ]
    return "\n".join(lines)


UNITS = {"encode": "tokens/s", "train": "tokens/s", "pairs": "pairs/s"}


def _speeds(task: str, unit: str, runs: dict[str, list[Measured]]) -> Iterator[str]:
    """Rows of one task: each precision, without dropout, and our best against theirs in fp32."""
    rows = [(name, name, f"{name} theirs") for name in (f"{task} fp32", f"{task} bf16")]
    rows += [(f"{name}, no dropout", name, f"{name} plain") for name, _, _ in rows]
    rows += [(f"{task} best", f"{task} bf16", f"{task} fp32 theirs")]
    for name, mine, other in rows:
        ours, theirs = ([one["rate"] for one in runs.get(key, [])] for key in (f"{mine} ours", other))
        if ours and theirs:
            cells = f"{name}, {unit}", f"{median(ours):,.0f}", f"{median(theirs):,.0f}", ratio(ours, theirs)
            stated = PUBLISHED.get(other.removesuffix(" theirs"))
            yield f"| {' | '.join(cells)} | {AIMS.get(name, '')} | {stated or ''} |"


def _searches(runs: dict[str, list[Measured]]) -> Iterator[str]:
    """A row for every number of passages."""
    for key in (key for key in runs if key.startswith("search") and key.endswith("ours")):
        ours, theirs = runs[key], runs.get(key.replace("ours", "theirs"), [])
        if theirs:
            mine, other = ([one["seconds"] for one in side] for side in (ours, theirs))
            held = (f"{median([one['growth MiB'] for one in side]):,.0f}" for side in (ours, theirs))
            cells = f"{median(mine):.2f}", f"{median(other):.2f}", ratio(other, mine), *held
            yield f"| {int(key.split()[1]):,} passages | {' | '.join(cells)} |"


def median(values: list[float]) -> float:
    """The middle one."""
    return float(np.median(values))  # a file beside this one has the name of the module that has this function


def ratio(above: list[float], below: list[float]) -> str:
    """The median of the rounds' ratios, and their range."""
    found = [one / other for one, other in zip(above, below, strict=False)]
    return f"{median(found):.2f} ({min(found):.2f} – {max(found):.2f})"


if __name__ == "__main__":
    typer.run(measure)
