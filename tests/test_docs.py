"""Every command of README and docs: run in a small clone, or, where that needs what a test lacks, parsed."""

import json
import re
import shlex
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

from stages.__main__ import open_chapter, without_nulls
from stages.artifacts.documents import read_json
from stages.bottleneck.recipe import load_recipe
from tests.clones import home
from tests.test_pipelines import PIPELINES, each
from tests.test_plot import STAGES, arguments, body

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of what DVC imports

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
RECIPES = sorted((ROOT / "stages" / "recipes").glob("*.yaml"))
# how many tables and figures each has
PAPERS = {"SimLM": (14, 3), "MASTER": (9, 2), "SEED-Encoder": (8, 6), "DupMAE": (6, 2), "CDMAE": (6, 4)}
PROGRAMS = (
    "dvc",
    "make",
    "python",
    ".venv/bin/",
    "torchrun",
    "accelerate",
    "pip",
    "cp",
    "git",
    "sh",
    "srun",
    "sbatch",
    "isthmus",
)

# what is run for real in the clone, after its `dvc repro`
RUN = [
    r"(\.venv/bin/)?python -m stages (doctor|plan|table|significance)\b.*",
    r"(\.venv/bin/)?dvc (plots show$|queue status|exp list|dag|metrics diff|params diff|plots diff HEAD)\b.*",
    r"dvc exp run --queue -S retriever\.alpha=1\.0",
    r"dvc repro --single-item --force --dry pretrain \| sed .*",
]
# what is only parsed, and why
PARSED = {
    r"make( install| install FAISS=cpu)?": "installs from the network; the default takes a quarter of an hour",
    r"make test": "runs this test",
    r"isthmus .*": "test_search, test_app and test_export run them; push needs a Hub",
    r"python -m stages compare .*": "wants two revisions that have been run; test_versus makes two",
    r"dvc plots (show|diff) .*analysis.*": "of pipelines/analysis, which is run by itself",
    r"dvc repro pipelines/.*": "reads collections that are not here; test_pipelines holds them against the code",
    r"make experiments": "wants the project's own .venv; its dvc line is run below",
    r"(\.venv/bin/)?dvc exp run (?!--queue|--run-all).*": "a quarter of an hour and more each",
    r"dvc exp run --queue (?!-S retriever\.alpha).*": "queues as the line that is run does, for a second each",
    r"dvc exp run --run-all": "days: the whole grid",
    r"dvc queue start .*": "days: the whole grid",
    r"dvc exp (apply|branch) longer.*": "needs the experiment named longer, which takes an hour",
    r"dvc gc .*": "deletes what other tests of the clone still need",
    r"dvc (commit --force pretrain|repro)": "belongs to a launcher's run, below",
    r"sh pretrain\.sh": "runs under torchrun on 8 GPUs",
    r"sbatch pretrain\.sbatch": "needs Slurm",
    r"accelerate config default": "writes into the home folder",
    r"nvidia-smi": "needs a GPU",
    r"pytest .*": "the tests of the masks run by themselves",
    r"cp -r models/(adapted-)?encoder models/\w+": "copies what the experiment before it has made",
    r"cp profiles/[\w-]+\.yaml params\.yaml": "would change the clone for the lines that are run in it",
    r"python -m stages (backbone|retriever|mine) .*": "downloads, or trains; tests of these chapters run them",
    r"python benchmarks/masking\.py .*": "measures, which takes an idle machine",
}


@cache
def blocks(page: Path) -> list[tuple[str, str]]:
    """(language, text) of a page's fenced blocks."""
    return re.findall(r"^```(\w*)\n(.*?)^```$", page.read_text(), re.MULTILINE | re.DOTALL)


def lines(page: Path) -> list[str]:
    """The command lines of a page: comments cut off, continued lines joined, chains of && taken apart."""
    text = "".join(text for language, text in blocks(page) if language == "sh").replace("\\\n", " ")
    bare = [re.sub(r"(^|\s+)#\s.*$", "", line).strip() for line in text.splitlines()]
    return [" ".join(part.split()) for line in bare for part in line.split(" && ") if part]


EVERY = list(dict.fromkeys(line for page in PAGES for line in lines(page)))
REAL = [line for line in EVERY if any(re.fullmatch(pattern, line) for pattern in RUN)]
REST = [line for line in EVERY if line not in REAL]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_commands_stand_in_blocks_that_say_so(page: Path) -> None:
    for language, text in blocks(page):
        if not language:
            assert not [line for line in text.splitlines() if line.split(" ")[0] in PROGRAMS], text


@pytest.mark.parametrize("line", REST)
def test_a_command_that_is_not_run_has_a_reason_and_parses(line: str) -> None:
    assert any(re.fullmatch(pattern, line) for pattern in PARSED), f"run it, or say why not: {line}"
    words = shlex.split(line)
    if words[0].endswith("dvc"):
        set_params(words[1:])
    elif words[0] == "isthmus" or words[:3] == ["python", "-m", "stages"]:
        chapter, *rest = words[1:] if words[0] == "isthmus" else words[3:]
        open_chapter(chapter).make_context(chapter, rest)  # raises where something is off
    elif words[0] == "make":
        subprocess.run(["make", "--dry-run", *words[1:]], cwd=ROOT, check=True, capture_output=True)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_pictures_and_pages_that_are_linked_exist(page: Path) -> None:
    for link in re.findall(r"\]\(((?!http)[^)#]+)\)", page.read_text("utf-8")):
        assert (page.parent / link).exists(), link


def test_no_reason_is_left_over() -> None:
    assert not [pattern for pattern in PARSED if not any(re.fullmatch(pattern, line) for line in REST)]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_what_a_page_changes_exists_and_fits(page: Path, tmp_path: Path) -> None:
    """In papers.md a line stands on the lines before it, elsewhere on what the project ships."""
    desk = desk_in(tmp_path / "desk")
    for line in lines(page):
        words = shlex.split(line)
        try:
            if words[0] == "cp" and words[-1] == "params.yaml":
                (desk / "params.yaml").write_text((ROOT / words[1]).read_text())
            elif words[:3] == ["dvc", "exp", "run"]:
                tried(words[1:], desk)
        except Exception as error:
            error.add_note(line)
            raise
        if page.stem != "papers":
            desk = desk_in(tmp_path / "desk")


def test_every_table_and_figure_of_the_five_papers_has_a_row() -> None:
    text = (ROOT / "docs" / "papers.md").read_text()
    sections = dict(re.findall(r"^## ([\w-]+)\n(.*?)(?=^## )", text, re.MULTILINE | re.DOTALL))
    for paper, (tables, figures) in PAPERS.items():
        wanted = [f"Table {n + 1}" for n in range(tables)] + [f"Figure {n + 1}" for n in range(figures)]
        assert re.findall(r"^\| ((?:Table|Figure) \d+) \|", sections[paper], re.MULTILINE) == wanted, paper


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_links_to_headings_lead_somewhere(page: Path) -> None:
    for file, heading in re.findall(r"\]\(((?!http)[^)#]*)#([^)]+)\)", page.read_text()):
        titles = re.findall(r"^#+ (.*)$", ((page.parent / file) if file else page).read_text(), re.MULTILINE)
        anchors = [re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles]
        assert heading in anchors, (file, heading)


def desk_in(folder: Path) -> Path:
    """A copy of every file that `-S` may change."""
    for file in [ROOT / "params.yaml", *RECIPES, *(path.with_name("params.yaml") for path in PIPELINES)]:
        copy = folder / file.relative_to(ROOT)
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_text(file.read_text())
    return folder


def tried(words: list[str], desk: Path) -> None:
    """Apply a line's `-S` to the desk, every value of a grid in turn; what is not queued stays there.

    Every key is one, the stages and pipelines take every value, the recipes still load, and one that is changed is run.
    """
    from dvc.utils.cli_parse import to_path_overrides
    from dvc.utils.hydra import get_hydra_sweeps

    found = set_params(words)
    changes = {file: these for file, these in to_path_overrides(found).items() if "NAME" not in file}
    before = {file: (desk / file).read_text() for file in changes}
    run: set[str] = {one["recipe"] for one in documents(desk) if "recipe" in one}
    for file, overrides in changes.items():
        for sweep in get_hydra_sweeps({file: overrides}):
            (desk / file).write_text(before[file])
            run |= applied(desk, file, sweep[file])
    assert {Path(file).stem for file in changes if "recipes/" in file} <= run, "a recipe is changed that is not run"
    if "--queue" in words:
        for file, text in before.items():
            (desk / file).write_text(text)


def set_params(words: list[str]) -> list[str]:
    """What a `dvc` line sets, by DVC's own parser."""
    from dvc.cli.parser import get_main_parser

    return getattr(get_main_parser().parse_args(words), "set_param", None) or []


def documents(desk: Path) -> list[dict[str, Any]]:
    """The parameters that name a recipe."""
    return [yaml.safe_load((desk / file).read_text()) for file in ("params.yaml", "pipelines/adaptation/params.yaml")]


def applied(desk: Path, file: str, overrides: list[str]) -> set[str]:
    """Change one file; returns the recipe that it names, if it does."""
    from dvc.utils.hydra import apply_overrides

    before = yaml.safe_load((desk / file).read_text())
    apply_overrides(str(desk / file), overrides)
    if "recipes/" in file:
        load_recipe(desk / file)
        return set()
    after = yaml.safe_load((desk / file).read_text())
    assert all(re.split(r"[.=]", change.lstrip("+~"))[0] in before for change in overrides), overrides
    fits(after, STAGES) if file == "params.yaml" else fits(after, pipeline(file))
    if "recipe" in after:
        assert (ROOT / "stages" / "recipes" / f"{after['recipe']}.yaml").is_file()
    return {after["recipe"]} if "recipe" in after else set()


@cache
def pipeline(file: str) -> dict[str, Any]:
    """The stages beside a file of parameters."""
    stages: dict[str, Any] = yaml.safe_load((ROOT / file).with_name("dvc.yaml").read_text())["stages"]
    return stages


def fits(params: dict[str, Any], stages: dict[str, Any]) -> None:
    """Every stage takes the parameters."""
    for stage in stages.values():
        for names in each(stage, params)[:1]:
            chapter, *rest = arguments(body(stage)["cmd"], params | names)
            taken(chapter, tuple(without_nulls(rest)))


@cache
def taken(chapter: str, rest: tuple[str, ...]) -> None:
    """Raise where the chapter's signature does not take the words."""
    open_chapter(chapter).make_context(chapter, list(rest))


def test_the_commands_run(run: Path) -> None:
    """One after the other in the clone; DVC's within one process, which spares its start."""
    runner = run.parent / "runner.py"
    runner.write_text(
        "import contextlib, io, json, sys\n"
        "from dvc.cli import main\n"
        "said = []\n"
        "for words in json.load(sys.stdin):\n"
        "    with contextlib.redirect_stdout(io.StringIO()) as out:\n"
        "        code = main(words)\n"
        "    said.append((code, out.getvalue()))\n"
        "print('SAID' + json.dumps(said))\n"
    )
    plain = list(dict.fromkeys(line.removeprefix(".venv/bin/") for line in REAL))
    ours = [shlex.split(line)[1:] for line in plain if line.startswith("dvc") and "|" not in line]
    done = subprocess.run(
        [sys.executable, str(runner)], input=json.dumps(ours), cwd=run, env=home(run), capture_output=True, text=True
    )
    assert "SAID" in done.stdout, done.stdout[-2000:] + done.stderr[-3000:]
    for words, (code, _) in zip(ours, json.loads(done.stdout.rpartition("SAID")[2]), strict=True):
        assert code == 0, (words, done.stderr[-3000:])
    for line in plain:
        if not line.startswith("dvc") or "|" in line:
            shell = subprocess.run(["bash", "-ec", line], cwd=run, env=home(run), capture_output=True, text=True)
            assert shell.returncode == 0, (line, shell.stdout[-1000:], shell.stderr[-3000:])
    assert (run / "pretrain.args").read_text().startswith(" pretrain stages/recipes/")
    assert read_json(run / "metrics" / "two.json")["retriever"]["RR@10"]["bm25"]["p"] <= 1


def test_make_experiments_leaves_few_columns(run: Path) -> None:
    line = next(line for line in (ROOT / "Makefile").read_text().splitlines() if "dvc exp show" in line)
    detail = re.search(r"^DETAIL := (.*)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert detail
    command = line.strip().replace("$(BIN)/", "").replace("'$(DETAIL)'", shlex.quote(detail[1].replace("$$", "$")))
    params = run / "params.yaml"
    before = params.read_text()
    params.write_text(before.replace("depth: 50", "depth: 40"))
    shown = subprocess.run(
        ["bash", "-ec", f"{command} --csv --only-changed"], cwd=run, env=home(run), capture_output=True, text=True
    )
    params.write_text(before)
    columns = shown.stdout.splitlines()[0].split(",")
    assert len([name for name in columns if name.startswith("RR@10.")]) == 7
    assert "retriever1.depth" in columns
    assert len(columns) < 25, columns


def test_the_slurm_example_is_a_script() -> None:
    scripts = [text for page in PAGES for language, text in blocks(page) if language == "sbatch"]
    assert scripts
    for text in scripts:
        subprocess.run(["bash", "-n"], input=text, text=True, check=True)
        assert text.startswith("#!/bin/bash\n#SBATCH ")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\((?!https?:)([^)#]+)", page.read_text()):
        assert (page.parent / target).exists(), target


def test_the_worked_example_is_the_code() -> None:
    example = next(text for language, text in blocks(ROOT / "docs" / "new-paper.md") if language == "python")
    code = (ROOT / "stages" / "bottleneck" / "masks.py").read_text()
    kept = [line.replace("return ", "") for line in example.splitlines()]
    assert all(line.strip() in code for line in kept), [line for line in kept if line.strip() not in code]
    recipe = next(text for language, text in blocks(ROOT / "docs" / "new-paper.md") if language == "yaml")
    assert recipe == (ROOT / "stages" / "recipes" / "spanbert.yaml").read_text()


def test_the_picture_is_the_plot(clone: Path) -> None:
    """Each of its arrows is an arrow of `dvc dag`, and every kind of stage is in it."""
    import networkx
    from dvc.repo import Repo

    with Repo(str(clone)) as repo:
        found = {(a.name, b.name) for b, a in repo.index.graph.edges if a.path_in_repo == "dvc.yaml" == b.path_in_repo}
    assert networkx.is_directed_acyclic_graph(networkx.DiGraph(found))
    drawn = next(text for language, text in blocks(ROOT / "README.md") if language == "mermaid")
    arrows = [
        [re.sub(r'^\w+\["(.*)"\]$', r"\1", end) for end in line.strip().split(" --> ")]
        for line in drawn.splitlines()[1:]
    ]

    def is_(name: str, stage: str) -> bool:
        return stage == name or ("@" not in name and stage.startswith(f"{name}@"))

    for start, end in arrows:
        assert any(is_(start, a) and is_(end, b) for a, b in found), (start, end)
    named = {name.partition("@")[0] for arrow in arrows for name in arrow}
    assert named == {name.partition("@")[0] for edge in found for name in edge}


def test_launchers_take_what_is_made_for_them() -> None:
    from accelerate.commands.launch import launch_command_parser
    from torch.distributed.run import get_args_parser

    dry = "Running stage 'pretrain':\n> python -m stages pretrain recipe.yaml --steps 3 --learning-rate 3e-05\n"
    made = {}
    for line in REAL:
        if "| sed" in line:
            words = shlex.split(line.partition("| ")[2].partition(" >")[0])
            made[line] = subprocess.run(words, input=dry, capture_output=True, text=True, check=True).stdout.split()
    scripts = [text for page in PAGES for language, text in blocks(page) if language == "sbatch"]
    srun = re.search(r"torchrun (.*)-m stages", scripts[0].replace("\\\n", " "), re.DOTALL)
    assert srun
    number = srun[1].replace("$SLURM_NNODES", "2")
    made["slurm"] = ["torchrun", *shlex.split(number), "-m", "stages", *dry.split()[7:]]
    parsers = {"torchrun": get_args_parser(), "accelerate": launch_command_parser()}
    seen = set()
    for words in made.values():
        if words[0] not in parsers:
            assert words == ["pretrain", "recipe.yaml", "--steps", "3", "--learning-rate", "3e-05"]
            continue
        found = parsers[words[0]].parse_args(words[2 if words[0] == "accelerate" else 1 :])
        assert found.module
        assert found.training_script == "stages"
        assert found.training_script_args[0] == "pretrain"
        seen.add(words[0])
    assert seen == set(parsers)
