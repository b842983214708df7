"""Table of contents: ``python -m stages CHAPTER``. A chapter is imported when it is opened."""

import errno
import sys
from importlib import import_module
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup

CHAPTERS = {
    "corpus": ("corpus", "Raw text → passages, queries and qrels."),
    "backbone": ("backbone", "A packaged, hub, local or new model → the model that everything starts from."),
    "tokens": ("tokens", "Passages → integer tables of pieces and words."),
    "keywords": ("statistics", "Tokens → TF-IDF weight of every word."),
    "salience": ("statistics", "Tokens → average pointwise mutual information of every word."),
    "doc2query": ("augmentation", "Passages → the queries they might answer."),
    "continuations": ("augmentation", "Passages → how a language model would go on."),
    "pretrain": ("pretraining", "Recipe, tokens and weights → encoder."),
    "bm25": ("bm25", "Passages and queries → run, by Lucene."),
    "retriever": ("retriever", "Encoder, qrels and a run of negatives → retriever."),
    "mine": ("mining", "Retriever and passages → run, by exact search."),
    "reranker": ("reranker", "Qrels and a run of negatives → cross-encoder."),
    "rescore": ("rescoring", "Cross-encoder and run → run with the cross-encoder's scores."),
    "evaluate": ("evaluation", "Run and qrels → measures with intervals, and per-query values."),
    "compare": ("comparison", "Per-query values of every row → paired tests."),
    "table": ("comparison", "Print what every stage was worth."),
    "plan": ("planning", "Estimate time, memory and disk of every stage before anything runs."),
    "doctor": ("doctor", "Say what this machine has, and what each missing thing costs."),
}


def open_chapter(name: str) -> typer.core.TyperCommand:
    """Import one chapter and make its function a command."""
    module, _ = CHAPTERS[name]
    app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
    app.command(name)(getattr(import_module(f"stages.{module}"), name))
    command = typer.main.get_command(app)
    assert isinstance(command, TyperCommand)
    return command


def without_nulls(args: list[str]) -> list[str]:
    """Drop ``--option None``, which is how DVC writes a parameter that is null."""
    kept: list[str] = []
    for arg in args:
        if arg == "None" and kept and kept[-1].startswith("--"):
            kept.pop()
        else:
            kept.append(arg)
    return kept


class Closed(TyperCommand):
    """A chapter that has been listed but not opened."""

    def make_context(self, info_name: str | None, args: list[str], parent: Any = None, **extra: Any) -> Any:
        return open_chapter(str(self.name)).make_context(info_name, without_nulls(args), parent, **extra)


class Contents(TyperGroup):
    """Lists the chapters in reading order without importing them."""

    def list_commands(self, ctx: Any) -> list[str]:
        return list(CHAPTERS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        if cmd_name not in CHAPTERS:
            return None
        return Closed(cmd_name, help=CHAPTERS[cmd_name][1])


app = typer.Typer(
    cls=Contents,
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    # params.yaml may spell a key with underscores; the command line spells it with dashes
    context_settings={"token_normalize_func": lambda token: token.replace("_", "-")},
)


@app.callback()
def contents() -> None:
    """Isthmus: from a text corpus to a dense retriever. Each chapter is a stage of dvc.yaml."""


def main() -> None:
    """Run a chapter; bad input and a full disk are one clear line, everything else is a traceback."""
    from stages.artifacts.refusal import Refusal

    try:
        app()
    except Refusal as refusal:
        sys.exit(_complain(str(refusal)))
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        sys.exit(_complain(f"{error.filename or 'output'}: no space left on the disk; nothing was written"))


def _complain(line: str) -> int:
    print(f"isthmus: {line}", file=sys.stderr)
    return 2


if __name__ == "__main__":
    main()
