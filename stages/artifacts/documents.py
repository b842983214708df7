"""YAML in, JSON out: small documents that a person or ``dvc metrics`` reads."""

import json
from pathlib import Path
from typing import Any

import yaml

from stages.artifacts.files import whole
from stages.artifacts.refusal import Refusal


def read_yaml(path: Path | str) -> Any:
    """The document in a YAML file.

    Raises:
        Refusal: the file is missing or is not YAML.
    """
    try:
        return yaml.safe_load(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise Refusal(f"{path}: {error.strerror}") from error
    except (yaml.YAMLError, ValueError) as error:  # a date without such a day, or bytes that are not UTF-8
        raise Refusal(f"{path}: not YAML: {' '.join(str(error).split())}") from error


def read_json(path: Path | str) -> Any:
    """The document in a JSON file.

    Raises:
        Refusal: the file is missing or is not JSON.
    """
    try:
        return json.loads(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise Refusal(f"{path}: {error.strerror}") from error
    except ValueError as error:
        raise Refusal(f"{path}: not JSON: {error}") from error


def write_json(path: Path | str, document: Any) -> None:
    """Write sorted, indented JSON, atomically; a NaN or an infinity is an error (DVC would take it)."""
    text = json.dumps(document, indent=2, sort_keys=True, allow_nan=False, ensure_ascii=False)
    with whole(path) as partial:
        partial.write_text(text + "\n", encoding="utf-8")
