"""One loss over all processes, and gradient caching: the same gradients."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing as mp

from stages.artifacts.checkpoints import load_encoder, load_tokenizer, load_vocabulary
from stages.artifacts.ragged import read_ragged
from stages.artifacts.tables import Queries, Run, Tokens
from stages.embedding.pieces import tokenised
from stages.ranking.biencoder import Batches, Retriever
from stages.ranking.groups import Inputs, Rules, read_groups
from stages.ranking.objective import Objective
from stages.ranking.runs import ordered
from stages.ranking.sampling import Sampler
from stages.ranking.towers import Towers
from stages.training.processes import Processes

ALONE = Processes(0, 1, torch.device("cpu"))
N, n, SCALE = 8, 3, 20.0


@pytest.fixture
def inputs(world: Any, tmp_path: Path) -> Inputs:
    """The world with a random run, whose scores also serve as a teacher's."""
    queries, names = (
        Queries.read(world.queries)["query_id"].to_pylist(),
        Tokens.read(world.tokens)["passage_id"].to_pylist(),
    )
    rows = [(q, p) for q in queries for p in names]
    Run.write(
        tmp_path / "run",
        ordered([q for q, _ in rows], [p for _, p in rows], np.random.default_rng(2).normal(size=len(rows))),
    )
    return Inputs(world.tokens, world.queries, world.qrels, world.passages, (tmp_path / "run",), tmp_path / "run")


def step(
    inputs: Inputs, backbone: Path, processes: Processes, chunk: int = 4_096, cached: bool = False, dropout: float = 0.0
) -> tuple[float, torch.Tensor, dict[str, Any]]:
    """Loss (this process's share), gradient and observations of one batch."""
    asking, _, groups = read_groups(inputs, Rules(), 0, 1.0)
    pieces = tokenised(asking.texts, load_tokenizer(backbone)), read_ragged(Tokens, inputs.tokens, "pieces")
    batches = Batches(Sampler(groups, N, n, 3), *pieces, load_vocabulary(backbone), 16, 32, chunk, processes)
    model = Retriever(Towers(load_encoder(backbone, dropout)), processes, Objective(SCALE), cached)
    model.towers.passage.normalise = True
    model.train()
    [batch] = batches(1)
    torch.manual_seed(9)
    loss, observed = model(batch, batch.counts)
    loss.backward()
    gradient = torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None])
    return loss.item(), gradient, observed


@pytest.mark.parametrize("chunk", [60, 200, 10_000])
def test_caching_gives_the_same_gradient(world: Any, inputs: Inputs, chunk: int) -> None:
    plain, cached = (step(inputs, world.backbone, ALONE, chunk, cached) for cached in (False, True))
    assert cached[0] == plain[0]
    torch.testing.assert_close(cached[1], plain[1], atol=1e-7, rtol=1e-5)


def test_caching_repeats_dropout(world: Any, inputs: Inputs) -> None:
    plain, cached = (step(inputs, world.backbone, ALONE, 200, cached, dropout=0.2) for cached in (False, True))
    torch.testing.assert_close(cached[1], plain[1], atol=1e-6, rtol=1e-4)
    assert not torch.allclose(plain[1], step(inputs, world.backbone, ALONE, 200)[1])


def test_chunks_change_nothing_but_padding(world: Any, inputs: Inputs) -> None:
    small, large = (step(inputs, world.backbone, ALONE, chunk) for chunk in (60, 10_000))
    assert small[0] == pytest.approx(large[0], rel=1e-5)
    torch.testing.assert_close(small[1], large[1], atol=1e-5, rtol=1e-3)


def test_what_a_query_sees_is_counted(world: Any, inputs: Inputs) -> None:
    _, _, observed = step(inputs, world.backbone, ALONE)
    seen, masked = (observed[name][0] / observed[name][1] for name in ("negatives", "masked"))
    assert seen + masked == N * n - 1


def share(rank: int, port: int, inputs: Inputs, backbone: Path, out: Path) -> None:
    """One of two processes."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=2)
    for name, chunk, cached in (("plain", 4_096, False), ("cached", 100, True)):
        loss, gradient, _ = step(inputs, backbone, Processes(rank, 2, torch.device("cpu")), chunk, cached)
        dist.all_reduce(gradient)
        torch.save({"loss": loss, "gradient": gradient}, out / f"{name}-{rank}.pt")
    dist.destroy_process_group()


def test_two_processes_are_one_with_caching_and_without(world: Any, inputs: Inputs, tmp_path: Path) -> None:
    import socket

    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    whole = step(inputs, world.backbone, ALONE)
    mp.spawn(share, (port, inputs, world.backbone, tmp_path), nprocs=2)
    for name in ("plain", "cached"):
        parts = [torch.load(tmp_path / f"{name}-{rank}.pt", weights_only=True) for rank in (0, 1)]
        assert sum(part["loss"] for part in parts) == pytest.approx(whole[0], rel=1e-5)
        for part in parts:
            torch.testing.assert_close(part["gradient"], whole[1], atol=1e-5, rtol=1e-3)
