"""Where an interrupted stage finds its own work again.

DVC deletes a stage's outputs before it runs, so the state of a half-done stage lives outside them, under a
name that is a fingerprint of the code, the parameters and the contents of the inputs. Another code, parameter
or input has another name, and so starts afresh.
"""

import hashlib
import json
import os
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

HOME = "ISTHMUS_SCRATCH"  # environment variable: a folder that several working copies may share
FINGERPRINT_DIGITS = 16


def scratch(stage: str, settings: Mapping[str, Any], inputs: Iterable[Path | str]) -> Path:
    """The folder for the resumable state of one run of a stage; made if absent.

    Says on standard error whether a run is resumed, or which other runs of the stage were left unfinished.
    Delete it with `files.remove` when the stage has written its outputs.
    """
    folder = home() / f"{stage}-{fingerprint(settings, inputs, code())}"
    others = [other for other in home().glob(f"{stage}-*") if other != folder]
    if folder.is_dir() and any(folder.iterdir()):
        print(f"{stage}: resuming the interrupted run in {folder}", file=sys.stderr)
    elif others:
        told = "other code, parameters or inputs"
        print(f"{stage}: starting afresh; {len(others)} unfinished with {told} kept in {home()}", file=sys.stderr)
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def home() -> Path:
    """The folder of everything that outlives an interrupted run."""
    return Path(os.environ.get(HOME, ".isthmus"))


def fingerprint(settings: Mapping[str, Any], inputs: Iterable[Path | str], program: str = "") -> str:
    """A short hash of settings and of the bytes (not the names) of the input files and folders."""
    digest = hashlib.sha256(program.encode())
    digest.update(json.dumps(settings, sort_keys=True, default=str).encode())
    for path in inputs:
        digest.update(content_hash(Path(path)).encode())
    return digest.hexdigest()[:FINGERPRINT_DIGITS]


def content_hash(path: Path) -> str:
    """SHA-256 of a file, or of the names and contents of a folder's files."""
    if path.is_file():
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    digest = hashlib.sha256()
    for part in sorted(part for part in path.rglob("*") if part.is_file()):
        digest.update(f"{part.relative_to(path)} {content_hash(part)}\n".encode())
    return digest.hexdigest()


def code() -> str:
    """The hash of every file of this package that the running program has imported."""
    own = {name: module for name, module in sys.modules.items() if name.split(".")[0] == __package__.split(".")[0]}
    files = sorted(str(module.__file__) for module in own.values() if getattr(module, "__file__", None))
    return hashlib.sha256("".join(content_hash(Path(file)) for file in files).encode()).hexdigest()
