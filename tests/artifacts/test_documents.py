"""YAML and JSON: refused in one line, written whole, never with a NaN."""

from pathlib import Path

import pytest

from stages.artifacts.documents import read_json, read_yaml, write_json
from stages.artifacts.refusal import Refusal


def test_json_is_sorted_and_ends_in_a_line_break(tmp_path: Path) -> None:
    write_json(tmp_path / "m.json", {"b": 1, "a": {"d": 0.5, "c": 2}})
    assert (tmp_path / "m.json").read_text() == '{\n  "a": {\n    "c": 2,\n    "d": 0.5\n  },\n  "b": 1\n}\n'
    assert read_json(tmp_path / "m.json") == {"a": {"c": 2, "d": 0.5}, "b": 1}


def test_nan_is_never_written(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="not JSON compliant"):
        write_json(tmp_path / "m.json", {"a": float("nan")})
    assert list(tmp_path.iterdir()) == []


def test_bad_documents_are_one_line(tmp_path: Path) -> None:
    (tmp_path / "bad.yaml").write_text("a: [1, 2\nb: 3\n")
    (tmp_path / "bad.json").write_text("{")
    (tmp_path / "date.yaml").write_text("a: 2024-13-45\n")
    (tmp_path / "latin.yaml").write_bytes("a: é\n".encode("latin-1"))
    for read, name in (
        (read_yaml, "bad.yaml"),
        (read_yaml, "date.yaml"),
        (read_yaml, "latin.yaml"),
        (read_json, "bad.json"),
        (read_yaml, "no.yaml"),
        (read_json, "no.json"),
    ):
        with pytest.raises(Refusal, match=name) as refusal:
            read(tmp_path / name)
        assert "\n" not in str(refusal.value)
