"""Every chapter that computes, on a GPU that is none: nothing is left on the wrong device, in bf16 products."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from stages.adaptation import adapt
from stages.artifacts.checkpoints import load_encoder
from stages.artifacts.documents import read_json
from stages.artifacts.tables import Queries, Run, Texts, Tokens
from stages.augmentation import continuations, doc2query
from stages.decoding import decoders
from stages.geometry import cosines, positions
from stages.glue import glue
from stages.mining import mine
from stages.pretraining import pretrain
from stages.ranking.runs import ordered
from stages.ranking.search import torch_top
from stages.reranker import reranker
from stages.rescoring import rescore
from stages.retriever import retriever
from stages.search import search
from tests.bottleneck.build import RECIPES
from tests.conftest import World
from tests.gpu import Labels, pretended

LENGTHS = {"longest": 40, "longest_query": 16}


@pytest.fixture(autouse=True)
def gpu(monkeypatch: pytest.MonkeyPatch) -> Iterator[Labels]:
    """One GPU, and what is on it."""
    with pretended(monkeypatch) as labels:
        yield labels


@pytest.fixture(scope="module")
def run(world: World, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Every passage for every query by a score that knows nothing: negatives, candidates, a teacher."""
    queries, names = Queries.read(world.queries)["query_id"].to_pylist(), Tokens.read(world.tokens)["passage_id"]
    pairs = [(query, name) for query in queries for name in names.to_pylist()]
    scores = np.random.default_rng(2).normal(size=len(pairs))
    path = tmp_path_factory.mktemp("runs") / "run"
    Run.write(path, ordered([query for query, _ in pairs], [name for _, name in pairs], scores))
    return path


def test_it_refuses_what_a_gpu_refuses() -> None:
    here, left, layer = torch.ones(3, 4, device="cuda"), torch.ones(3, 4), nn.Linear(4, 5)
    for wrong in (lambda: here + left, lambda: layer(here), lambda: left[torch.tensor([0], device="cuda")]):
        with pytest.raises(RuntimeError, match="same device"):
            wrong()
    with pytest.raises(TypeError, match="numpy"):
        here.numpy()
    assert (here * torch.tensor(2.0))[torch.tensor([0])].is_cuda
    assert here.cpu().numpy().shape == (3, 4)
    assert not here.to("cpu").is_cuda
    assert not left.is_cuda
    assert left.to(here).double()[1:].is_cuda
    layer.to("cuda")(here).sum().backward()
    assert layer.weight.is_cuda
    assert layer.weight.grad is not None
    assert layer.weight.grad.is_cuda
    with torch.autocast("cuda", torch.bfloat16):
        assert layer(here).dtype == torch.bfloat16


@pytest.mark.parametrize("recipe", sorted(path.stem for path in RECIPES.glob("*.yaml")))
def test_every_recipe_trains_and_is_probed(world: World, tmp_path: Path, recipe: str) -> None:
    """A generator is trained first where the recipe has one; the decoders' states are looked at afterwards."""
    beside = {name: getattr(world, name) for name in ("keywords", "salience")}
    beside |= {"doc2query": world.tokens, "continuations": world.tokens}
    text = (RECIPES / f"{recipe}.yaml").read_text()
    file, encoder = tmp_path / "recipe.yaml", tmp_path / "encoder"
    file.write_text(text.replace("{train: frozen}", "{train: frozen, steps: 2, layers: 1}"))
    asked = {"queries": world.queries, "qrels": world.qrels, "probe": 2, "steps": 2, "batch": 16, "longest": 32}
    metrics = tmp_path / "m.json"
    pretrain(file, world.passages, world.tokens, world.backbone, encoder, metrics, **beside, **asked)  # type: ignore[arg-type]
    assert recipe == "none" or read_json(metrics)["precision"] == "bf16"
    assert load_encoder(encoder).config.hidden_size == 32
    if "network: bidirectional" in text or "network: causal" in text:
        decoders(file, world.passages, world.tokens, encoder, tmp_path / "d.json", longest=16, **beside)


@pytest.mark.parametrize(
    "options",
    [
        {"chunk": 4, "refresh": 1, "probe_every": 2},
        {"towers": "untied", "head": "linear", "width": 8, "similarity": "cosine"},
        {"alpha": 0.5, "distillation": "margin-mse", "objective": "pairwise"},
        {"objective": "triplet", "denominator": "eq3", "dropout": 0.1},
    ],
    ids=lambda options: next(iter(options)),
)
def test_retrievers_train_and_mine(world: World, tmp_path: Path, run: Path, options: dict[str, Any]) -> None:
    tables = world.tokens, world.queries, world.qrels, world.passages
    settings = {"batch": 8, "group": 3, "steps": 3, "learning_rate": 1e-3, "metrics": tmp_path / "m.json", **LENGTHS}
    if "alpha" in options:
        options = options | {"teacher": run}
    retriever(world.backbone, *tables, tmp_path / "model", negatives=[run], **settings, **options)
    asked = world.tokens, world.queries, tmp_path / "run"
    mine(tmp_path / "model", *asked, depth=7, feedback=2, metrics=tmp_path / "n.json", **LENGTHS)
    assert read_json(tmp_path / "m.json")["precision"] == read_json(tmp_path / "n.json")["precision"] == "bf16"


def test_a_bag_beside_the_vector_trains_and_mines(world: World, tmp_path: Path, run: Path) -> None:
    metrics, start, model = (tmp_path / name for name in ("m.json", "start", "model"))
    recipe = RECIPES / "dupmae.yaml"
    pretrain(recipe, world.passages, world.tokens, world.backbone, start, metrics, steps=1, batch=8)
    tables = world.tokens, world.queries, world.qrels, world.passages
    kind = {"bag": 20, "head": "linear", "width": 8, "similarity": "dot", "metrics": metrics}
    retriever(start, *tables, model, negatives=[run], group=2, batch=8, steps=2, **kind, **LENGTHS)  # type: ignore[arg-type]
    mine(model, world.tokens, world.queries, tmp_path / "run", depth=7, **LENGTHS)
    assert Run.read(tmp_path / "run").num_rows == 60 * 7


def test_exact_search_without_faiss() -> None:
    queries, passages = (np.random.default_rng(seed).normal(size=(9, 4)).astype(np.float32) for seed in (1, 2))
    scores, rows = torch_top(queries, passages, 3)
    np.testing.assert_allclose(scores, np.take_along_axis(queries @ passages.T, rows, 1), rtol=1e-5)


def test_queries_adapt_and_passages_are_found(
    world: World, tmp_path: Path, run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tables = world.tokens, world.queries, world.qrels, world.passages
    adapt(world.backbone, run, *tables, tmp_path / "model", tmp_path / "m.json", longest=40, batch=8, steps=2)
    shown = world.tokens, world.passages, world.queries, world.qrels, tmp_path / "index", tmp_path / "none.lock"
    search("ba", "retriever", 5, tmp_path / "model", tmp_path / "none", *shown, longest=64)
    assert len([line for line in capsys.readouterr().out.splitlines() if not line.startswith("     ")]) == 5


def test_a_reranker_trains_and_scores(world: World, tmp_path: Path, run: Path) -> None:
    tables = world.tokens, world.queries, world.qrels, world.passages
    settings = {"batch": 6, "group": 4, "steps": 3, "factor": 2, "r_drop": True, "dropout": 0.1, **LENGTHS}
    model, metrics = tmp_path / "model", tmp_path / "m.json"
    reranker(world.backbone, *tables, model, negatives=[run], metrics=metrics, **settings)  # type: ignore[arg-type]
    rescore(model, run, world.tokens, world.queries, world.qrels, tmp_path / "run", depth=5, **LENGTHS)
    assert Run.read(tmp_path / "run").num_rows > 0


def test_texts_are_generated(world: World, tmp_path: Path) -> None:
    small = {"layers": 1, "width": 32, "steps": 2, "batch": 4, "new_pieces": 6, "prompt_pieces": 20}
    doc2query(world.passages, world.queries, world.qrels, world.backbone, tmp_path / "q", count=2, **small)  # type: ignore[arg-type]
    continuations(world.passages, world.backbone, tmp_path / "c", **small)  # type: ignore[arg-type]
    assert Texts.read(tmp_path / "q").num_rows == Texts.read(tmp_path / "c").num_rows == 60


def test_what_figures_show(world: World, tmp_path: Path) -> None:
    cosines([world.backbone], tokens=world.tokens, out=tmp_path / "c.json", lengths=[32, 8], sample=10)
    positions([world.backbone], world.tokens, tmp_path / "p.json", longest=16)
    rows = "".join(f"x\t{i % 2}\t\t{'ba ke' if i % 2 else 'zu li'} mo\n" for i in range(16))
    (tmp_path / "t.tsv").write_text(rows)
    glue("cola", world.backbone, tmp_path / "t.tsv", [tmp_path / "t.tsv"], tmp_path / "g.json", epochs=1, batch=8)
    assert read_json(tmp_path / "g.json")["steps"] == 2
