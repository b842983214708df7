"""What a Git revision or an experiment of DVC's was worth, query by query: Values tables as DVC tracked them there."""

import tempfile
from pathlib import Path
from typing import Any

import pyarrow as pa

from stages.artifacts.refusal import Refusal
from stages.artifacts.tables import Queries, Values

WORKSPACE = "workspace"


def read_values(revision: str, folder: Path) -> dict[str, pa.Table]:
    """{row: Values} of every table in a folder at a revision, a row being a path there without its ending.

    Args:
        revision: a commit, branch, tag or experiment of the repository in which the program runs, or ``workspace``.
        folder: relative to the repository's root.

    Raises:
        Refusal: there is no such revision, it has no tables there, or one is neither in the cache nor in a remote.
    """
    with tempfile.TemporaryDirectory() as place:
        paths = _fetched(revision, folder, Path(place))
        found = {path.relative_to(root).with_suffix("").as_posix(): Values.read(path) for root, path in paths}
    if not found:
        raise Refusal(f"{revision}: no per-query values in {folder}")
    return found


def read_texts(revision: str, path: Path) -> dict[str, str]:
    """{query_id: text} of a Queries table at a revision; empty where it has none."""
    with tempfile.TemporaryDirectory() as place:
        for _, found in _fetched(revision, path, Path(place)):
            table = Queries.read(found)
            return dict(zip(table["query_id"].to_pylist(), table["text"].to_pylist(), strict=True))
    return {}


def _fetched(revision: str, source: Path, place: Path) -> list[tuple[Path, Path]]:
    """(root, file) of the Parquet files at or below ``source``, fetched into ``place``."""
    if revision == WORKSPACE:
        files = [source] if source.is_file() else sorted(source.rglob("*.parquet"))
        return [(source, path) for path in files]
    from dvc.api import DVCFileSystem
    from dvc.exceptions import DvcException
    from scmrepo.exceptions import SCMError

    pairs = []
    try:
        there: Any = DVCFileSystem(".", rev=revision)
        for name in sorted(there.find(source.as_posix())) if there.exists(source.as_posix()) else []:
            if name.endswith(".parquet"):
                target = place / name.strip("/")
                target.parent.mkdir(parents=True, exist_ok=True)
                there.get_file(name, str(target))
                pairs.append((place / source, target))
    except (DvcException, SCMError) as error:
        raise Refusal(f"{revision}: {' '.join(str(error).split())}") from error
    except OSError as error:
        raise Refusal(f"{revision}: {source} is neither in the cache nor in a remote: {error}") from error
    return pairs
