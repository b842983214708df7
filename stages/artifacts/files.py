"""Files and folders that appear whole or not at all."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from stages.artifacts.refusal import Refusal


@contextmanager
def whole(path: Path | str) -> Iterator[Path]:
    """Yield a temporary sibling of ``path`` and rename it onto ``path`` when the block succeeds.

    The block writes a file or makes a folder there. On any error the sibling is removed, so that
    a reader never meets half an output.
    """
    target = Path(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    partial = target.with_name(f".{target.name}.{os.getpid()}.partial")
    remove(partial)
    try:
        yield partial
        if target.is_dir():
            remove(target)
        os.replace(partial, target)
    finally:
        remove(partial)


def refuse_missing(folder: Path, *names: str) -> None:
    """Raise `Refusal` for the first of some files that a folder has not."""
    for name in names:
        if not (folder / name).is_file():
            raise Refusal(f"{folder / name}: no such file")


def remove(path: Path) -> None:
    """Delete a file or a folder; absence is no error."""
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
