"""The command line: one line for bad input and for a full disk, and nothing half-written."""

import errno
import subprocess
import sys
from pathlib import Path

import pytest

import stages.__main__ as contents
from tests.conftest import World


def test_bad_input_is_one_line_and_status_2(world: World, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "stages", "keywords", str(world.passages), str(tmp_path / "out.parquet")]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 2
    assert done.stderr.splitlines() == [f"isthmus: {world.passages}: not a Tokens table: column pieces is missing"]
    assert list(tmp_path.iterdir()) == []


def test_a_full_disk_is_one_line(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def full() -> None:
        raise OSError(errno.ENOSPC, "No space left on device", "data/tokens.parquet")

    monkeypatch.setattr(contents, "app", full)
    with pytest.raises(SystemExit) as stop:
        contents.main()
    assert stop.value.code == 2
    assert capsys.readouterr().err == "isthmus: data/tokens.parquet: no space left on the disk; nothing was written\n"


def test_a_disk_that_is_really_full(world: World, tmp_path: Path) -> None:
    program = (
        "import resource, signal, sys\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"  # a write beyond the limit then fails as on a full disk
        "resource.setrlimit(resource.RLIMIT_FSIZE, (2000, 2000))\n"
        "from stages.artifacts.tables import Texts\n"
        "rows = [str(i * 7919 % 10007) for i in range(20000)]\n"
        "Texts.write(sys.argv[1], {'passage_id': rows, 'text': rows})\n"
    )
    done = subprocess.run([sys.executable, "-c", program, str(tmp_path / "t.parquet")], capture_output=True, text=True)
    assert done.returncode != 0
    assert list(tmp_path.iterdir()) == []


def test_other_errors_keep_their_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken() -> None:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(contents, "app", broken)
    with pytest.raises(OSError, match="Input/output error"):
        contents.main()
