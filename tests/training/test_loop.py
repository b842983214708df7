"""The loop: a run that is cut anywhere ends with the same bytes; several processes are one."""

import json
import subprocess
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
import torch
import torch.multiprocessing as mp
from torch import Tensor, nn

from stages.training import checkpoint
from stages.training.curves import Curves
from stages.training.loop import Plan, train
from stages.training.processes import Processes

CPU = torch.device("cpu")
ALONE = Processes(0, 1, CPU)
PLAN = Plan(steps=12, learning_rate=0.05, warmup=3, new_parts=2, log_every=3, precision="fp32", checkpoint=0.0)


@dataclass
class Points:
    x: Tensor
    counts: dict[str, int]

    def to(self, device: torch.device) -> "Points":
        return Points(self.x.to(device), self.counts)


class Line(nn.Module):
    """Fits y = Σ x through dropout, so that random state matters; ``extra`` is new."""

    def __init__(self, dropout: float = 0.3) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.main, self.extra, self.unused = nn.Linear(4, 4), nn.Linear(4, 1), nn.Linear(2, 2)
        self.dropout = nn.Dropout(dropout)
        self.new = {"extra.weight", "extra.bias"}

    def forward(self, batch: Points, totals: dict[str, int]) -> tuple[Tensor, dict[str, tuple[Tensor, Tensor]]]:
        found = self.extra(self.dropout(self.main(batch.x)))[:, 0]
        loss = (found - batch.x.sum(1)).square().sum()
        return loss / totals["points"], {"error": (loss, torch.tensor(float(len(found))))}


def batches(rank: int = 0, world: int = 1) -> Callable[[int], list[Points]]:
    def of(step: int) -> list[Points]:
        x = torch.randn(8, 4, generator=torch.Generator().manual_seed(step))[rank::world]
        return [Points(part, {"points": len(part), "tokens": 4 * len(part)}) for part in x.split(3)]

    return of


def weights(model: nn.Module) -> list[Tensor]:
    return [value.detach().clone() for value in model.parameters()]


def same(one: list[Tensor], other: list[Tensor]) -> bool:
    return all(torch.equal(a, b) for a, b in zip(one, other, strict=True))


def test_it_learns_and_reports(tmp_path: Path) -> None:
    model = Line(0.0)
    report = train(model, batches(), Plan(steps=200, learning_rate=0.05, precision="fp32"), ALONE, tmp_path)
    assert report.history[-1]["error"] < 0.05 * report.history[0]["error"]
    assert report.history[-1]["loss"] == pytest.approx(report.history[-1]["error"], rel=1e-5)
    assert report.tokens == 200 * 32
    assert [row["step"] for row in report.history] == list(range(10, 201, 10))


def test_the_probe_is_asked_as_often_as_said(tmp_path: Path) -> None:
    asked: list[int] = []

    def probe(step: int) -> dict[str, float]:
        asked.append(step)
        return {"seen": float(step)}

    plan = replace(PLAN, steps=11, probe_every=4)
    history = train(Line(), batches(), plan, ALONE, tmp_path, probe=probe).history
    assert asked == [row["seen"] for row in history if "seen" in row] == [4, 8, 11]
    assert [row["step"] for row in history] == [3, 4, 6, 8, 9, 11]


@pytest.mark.parametrize("cut", [1, 3, 5, 11])
def test_a_run_cut_anywhere_ends_the_same(tmp_path: Path, cut: int) -> None:
    whole = Line()
    expected = train(whole, batches(), PLAN, ALONE, tmp_path / "whole").history

    def failing(step: int) -> list[Points]:
        if step == cut:
            raise KeyboardInterrupt
        return batches()(step)

    with pytest.raises(KeyboardInterrupt):
        train(Line(), failing, PLAN, ALONE, tmp_path / "cut")
    resumed = Line()
    history = train(resumed, batches(), PLAN, ALONE, tmp_path / "cut").history
    assert same(weights(whole), weights(resumed))
    assert history == expected


def test_a_damaged_state_falls_back_to_the_one_before(tmp_path: Path) -> None:
    whole = Line()
    train(whole, batches(), PLAN, ALONE, tmp_path)
    states = checkpoint.states(tmp_path)
    assert [state.name for state in states] == ["step-000000006", "step-000000009"]
    (states[-1] / "state.safetensors").write_bytes(b"cut short")
    resumed = Line()
    train(resumed, batches(), PLAN, ALONE, tmp_path)
    assert same(weights(whole), weights(resumed))


def test_new_parts_train_alone_at_first(tmp_path: Path) -> None:
    model = Line()
    before = {name: value.detach().clone() for name, value in model.named_parameters()}
    plan = Plan(steps=2, learning_rate=0.05, new_parts=2, precision="fp32")
    train(model, batches(), plan, ALONE, tmp_path)
    changed = {name for name, value in model.named_parameters() if not torch.equal(value, before[name])}
    assert changed == model.new


def test_the_rate_rises_and_falls() -> None:
    rates = [PLAN.rate(step) for step in range(12)]
    assert rates[2] == pytest.approx(max(rates)) == PLAN.learning_rate
    assert rates[0] == pytest.approx(PLAN.learning_rate / 3)
    assert rates[-1] == pytest.approx(PLAN.learning_rate / 9)


def test_curves_of_a_resumed_run_are_those_of_an_uninterrupted_one(tmp_path: Path) -> None:
    def files(folder: Path) -> dict[str, bytes]:
        return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*.tsv")}

    train(Line(), batches(), PLAN, ALONE, tmp_path / "a", Curves(tmp_path / "whole"))
    train(Line(), batches(), PLAN, ALONE, tmp_path / "a", Curves(tmp_path / "resumed"))  # from its last state
    assert files(tmp_path / "whole") == files(tmp_path / "resumed")
    assert "plots/metrics/error.tsv" in files(tmp_path / "whole")


def test_curves_need_no_commit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    monkeypatch.chdir(tmp_path)
    curves = Curves(Path("curves"))
    for step in (1, 2):
        curves.log(step, {"error": 0.5 / step})
    curves.close()
    lines = Path("curves/plots/metrics/error.tsv").read_text().splitlines()
    assert lines == ["step\terror", "1\t0.5", "2\t0.25"]


def test_a_loss_that_is_not_a_number_stops_the_run(tmp_path: Path) -> None:
    plan = Plan(steps=50, learning_rate=1e30, clip=1e30, precision="fp32", log_every=5)
    with pytest.raises(FloatingPointError, match="lower the learning rate"):
        train(Line(), batches(), plan, ALONE, tmp_path)


def one_of_two(rank: int, folder: str) -> None:
    torch.distributed.init_process_group("gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=2)
    model = Line(0.0)
    train(model, batches(rank, 2), PLAN, Processes(rank, 2, CPU), Path(folder) / f"rank{rank}")
    torch.save(weights(model), f"{folder}/{rank}.pt")
    torch.distributed.destroy_process_group()


def test_two_processes_are_one(tmp_path: Path) -> None:
    alone = Line(0.0)
    train(alone, batches(), PLAN, ALONE, tmp_path / "alone")
    mp.spawn(one_of_two, (str(tmp_path),), nprocs=2)
    first, second = (torch.load(tmp_path / f"{rank}.pt") for rank in (0, 1))
    assert same(first, second)
    for a, b in zip(first, weights(alone), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-6)


class Uneven(Line):
    """Sees something that only one process has: a text that is absent from the others' batches."""

    def __init__(self, rare: bool) -> None:
        super().__init__(0.0)
        self.rare = rare

    def forward(self, batch: Points, totals: dict[str, int]) -> tuple[Tensor, dict[str, tuple[Tensor, Tensor]]]:
        loss, observed = super().forward(batch, totals)
        return loss, observed | ({"a rare one": (torch.tensor(3.0), torch.tensor(2.0))} if self.rare else {})


def one_of_uneven(rank: int, folder: str) -> None:
    torch.distributed.init_process_group("gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=2)
    report = train(Uneven(rank == 1), batches(rank, 2), PLAN, Processes(rank, 2, CPU), Path(folder) / f"rank{rank}")
    (Path(folder) / f"{rank}.json").write_text(json.dumps(report.history))
    torch.distributed.destroy_process_group()


def test_what_one_process_saw_is_logged_by_all(tmp_path: Path) -> None:
    expected = train(Line(0.0), batches(), PLAN, ALONE, tmp_path / "alone").history
    mp.spawn(one_of_uneven, (str(tmp_path),), nprocs=2)
    first, second = (json.loads((tmp_path / f"{rank}.json").read_text()) for rank in (0, 1))
    assert first == second
    for row, other in zip(first, expected, strict=True):
        assert row == pytest.approx(other | {"a rare one": 1.5}, rel=1e-4)


def test_a_pause_changes_nothing_but_where_it_stops(tmp_path: Path) -> None:
    whole, cut = Line(), Line()
    train(whole, batches(), PLAN, ALONE, tmp_path / "whole")
    first = train(cut, batches(), replace(PLAN, pause=5), ALONE, tmp_path / "cut")
    assert first.history[-1]["step"] == 5
    assert [state.name for state in checkpoint.states(tmp_path / "cut")][-1] == "step-000000005"
    again = Line()
    last = train(again, batches(), PLAN, ALONE, tmp_path / "cut")
    assert same(weights(again), weights(whole))
    assert [row["step"] for row in last.history] == [3, 5, 6, 9, 12]
