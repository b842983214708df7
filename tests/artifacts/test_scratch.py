"""Fingerprints: what changes them, what does not."""

from pathlib import Path

import pytest

from stages.artifacts.scratch import content_hash, fingerprint, scratch


def test_a_run_finds_its_own_folder_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "input"
    file.write_text("a")
    first = scratch("stage", {"lr": 0.1}, [file])
    (first / "state").touch()
    assert scratch("stage", {"lr": 0.1}, [file]) == first
    assert "resuming" in capsys.readouterr().err
    assert scratch("stage", {"lr": 0.2}, [file]) != first
    assert "starting afresh" in capsys.readouterr().err
    file.write_text("b")
    assert scratch("stage", {"lr": 0.1}, [file]) != first


def test_names_of_inputs_do_not_matter_but_contents_do(tmp_path: Path) -> None:
    for name in ("x", "y"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "file").write_text("same")
    assert fingerprint({}, [tmp_path / "x"]) == fingerprint({}, [tmp_path / "y"])
    (tmp_path / "y" / "file").rename(tmp_path / "y" / "other")
    assert content_hash(tmp_path / "x") != content_hash(tmp_path / "y")


def test_code_is_part_of_the_name() -> None:
    assert fingerprint({}, [], "one program") != fingerprint({}, [], "another")
