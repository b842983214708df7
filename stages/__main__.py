"""Table of contents: ``python -m stages CHAPTER``. A chapter is imported when it is opened."""

import errno
import sys
from importlib import import_module
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup

CHAPTERS = {
    "corpus": ("corpus", "Raw text → passages, queries and qrels."),
    "topics": ("topics", "Topics and judgements of a source → queries and qrels, without its passages."),
    "backbone": ("backbone", "A packaged, hub, local or new model → the model that everything starts from."),
    "chunks": ("chunks", "Long passages → chunks of so many pieces, for MaxP."),
    "tokens": ("tokens", "Passages → integer tables of pieces and words."),
    "keywords": ("statistics", "Tokens → TF-IDF weight of every word."),
    "salience": ("statistics", "Tokens → average pointwise mutual information of every word."),
    "doc2query": ("augmentation", "Passages → the queries they might answer."),
    "continuations": ("augmentation", "Passages → how a language model would go on."),
    "pseudo": ("pseudo", "Passages → titles and sentences of theirs as queries."),
    "expand": ("expansion", "Passages and their generated queries → longer passages, for BM25."),
    "pretrain": ("pretraining", "Recipe, tokens and weights → encoder."),
    "bm25": ("bm25", "Passages and queries → run, by Lucene."),
    "retriever": ("retriever", "Encoder, qrels and a run of negatives → retriever."),
    "adapt": ("adaptation", "Retriever and a teacher's run → a query encoder for a corpus without labels."),
    "merge": ("merging", "Retrievers of one shape → the mean of their weights."),
    "mine": ("mining", "Retriever and passages → run, by exact search."),
    "reranker": ("reranker", "Qrels and a run of negatives → cross-encoder."),
    "rescore": ("rescoring", "Cross-encoder and run → run with the cross-encoder's scores."),
    "candidates": ("impressions", "Judged passages of every query → run, to be re-ranked."),
    "match": ("matching", "Retriever and run → run with the retriever's scores of its pairs."),
    "fuse": ("fusion", "Runs of several systems → one run."),
    "maxp": ("fusion", "Run over passages → run over their documents."),
    "evaluate": ("evaluation", "Run and qrels → measures with intervals, and per-query values."),
    "hits": ("answering", "Run and answers → how often one of the first passages holds an answer."),
    "impressions": ("impressions", "Run of given candidates and qrels → MIND's measures by impression."),
    "macro": ("averaging", "Evaluations of many collections → their macro average."),
    "glue": ("glue", "Encoder and a task of GLUE → how well it classifies, fine-tuned."),
    "significance": ("comparison", "Per-query values of every row → paired tests."),
    "compare": ("versus", "Two revisions or experiments, row by row and query by query."),
    "cosines": ("geometry", "Encoders → mean cosine of random texts by length."),
    "positions": ("geometry", "Encoders → similarity of every position's state to [CLS]."),
    "decoders": ("decoding", "Encoder with its heads → similarity of decoders' states to [CLS], by position."),
    "masks": ("masking", "What each masking strategy hides, by frequency."),
    "table": ("comparison", "Print what every stage was worth."),
    "report": ("report", "Metrics, curves and runs → one page to look at."),
    "search": ("search", "Print the best passages for a query."),
    "serve": ("search", "Open a search page on this machine."),
    "export": ("export", "Corpus, runs and training groups in other programs' forms."),
    "card": ("export", "Write a model card from what ran."),
    "push": ("export", "Upload the model and its card to a Hub."),
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
