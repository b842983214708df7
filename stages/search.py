"""A finished run to be searched: on the command line, or on a page of this machine."""

import sys
import textwrap
import time
from pathlib import Path
from typing import Annotated, Any

import typer

from stages.artifacts.refusal import Refusal
from stages.searching.index import Source, opened
from stages.searching.known import Known
from stages.searching.remembered import remembered
from stages.searching.systems import Settings, System, Systems
from stages.training.precision import Precision, resolved

MOST = 10  # passages re-ranked where nothing is said: a page that answers to typing has no time for hundreds

ModelPath = Annotated[Path, typer.Option(help="Model folder of the retriever.")]
RerankerPath = Annotated[Path, typer.Option(help="Model folder of the cross-encoder; without it nothing is re-ranked.")]
TokensPath = Annotated[Path, typer.Option(help="Tokens table of the corpus.")]
PassagesPath = Annotated[Path, typer.Option(help="Passages table.")]
QueriesPath = Annotated[Path, typer.Option(help="Queries table: known queries' answers are marked.")]
QrelsPath = Annotated[Path, typer.Option(help="Qrels table.")]
IndexPath = Annotated[Path, typer.Option(help="Folder of the index; built where it is missing or out of date.")]
LockPath = Annotated[Path, typer.Option(help="DVC's lock file of the run: the options below are by default as there.")]
Longest = Annotated[int | None, typer.Option(min=8, help="Pieces of a passage, special ones included.")]
LongestQuery = Annotated[int | None, typer.Option(min=3, help="Pieces of a query, special ones included.")]
LongestPair = Annotated[int | None, typer.Option(min=8, help="Pieces of a query and a passage in the cross-encoder.")]
Candidates = Annotated[
    int | None,
    typer.Option(min=1, help=f"Passages that are re-ranked; not said: as many as in the run, {MOST} at most."),
]
Prior = Annotated[
    float | None, typer.Option(min=0.0, help="Weight of the retriever's score beside the re-ranker's logit.")
]

MODEL, RERANKER, INDEX = Path("models/retriever"), Path("models/reranker"), Path(".isthmus/index")
TOKENS, PASSAGES = Path("data/tokens.parquet"), Path("data/passages.parquet")
QUERIES, QRELS = Path("data/queries.parquet"), Path("data/qrels.parquet")
LOCK = Path("dvc.lock")
WIDTH = 100  # characters of a line on the terminal
BACKLOG = 128  # connections that wait
SHOWN = 400  # characters of a passage there


def search(
    query: Annotated[str, typer.Argument(help="What is looked for.")],
    system: Annotated[System, typer.Option(help="Who ranks.")] = "retriever",
    top: Annotated[int, typer.Option(min=1, max=1000, help="Passages shown.")] = 10,
    model: ModelPath = MODEL,
    reranker: RerankerPath = RERANKER,
    tokens: TokensPath = TOKENS,
    passages: PassagesPath = PASSAGES,
    queries: QueriesPath = QUERIES,
    qrels: QrelsPath = QRELS,
    index: IndexPath = INDEX,
    lock: LockPath = LOCK,
    longest: Longest = None,
    longest_query: LongestQuery = None,
    longest_pair: LongestPair = None,
    candidates: Candidates = None,
    prior: Prior = None,
    precision: Precision = "auto",
) -> None:
    """Print the best passages for a query, with their scores; known answers are starred."""
    began, systems = time.monotonic(), _systems(locals())
    systems.load([system])
    loaded = time.monotonic()
    hits = systems.search(system, query, top)
    told = f"{time.monotonic() - loaded:.3f} s after {loaded - began:.1f} s of loading"
    gold = Known(queries, qrels).gold(query) if queries.is_file() and qrels.is_file() else set()
    for hit in hits:
        star = " *" if hit.passage_id in gold else ""
        typer.echo(f"{hit.rank:3}  {hit.score:8.4f}  {hit.passage_id}{star}")
        text = " ".join(f"{hit.title} {hit.text}".split())
        indent = " " * 5
        lines = textwrap.shorten(text, SHOWN, placeholder=" …")
        typer.echo(textwrap.fill(lines, WIDTH, initial_indent=indent, subsequent_indent=indent))
    print(f"{len(hits)} of {len(systems.library):,} passages in {told}", file=sys.stderr)


def serve(
    port: Annotated[int, typer.Option(min=0, max=65_535, help="Port; 0 takes a free one.")] = 8000,
    host: Annotated[str, typer.Option(help="Address; others than 127.0.0.1 let other machines search.")] = "127.0.0.1",
    model: ModelPath = MODEL,
    reranker: RerankerPath = RERANKER,
    tokens: TokensPath = TOKENS,
    passages: PassagesPath = PASSAGES,
    queries: QueriesPath = QUERIES,
    qrels: QrelsPath = QRELS,
    index: IndexPath = INDEX,
    lock: LockPath = LOCK,
    longest: Longest = None,
    longest_query: LongestQuery = None,
    longest_pair: LongestPair = None,
    candidates: Candidates = None,
    prior: Prior = None,
    precision: Precision = "auto",
) -> None:
    """Open a page on this machine: type, and see two systems side by side."""
    import uvicorn

    from stages.searching.app import HOSTS, application

    systems = _systems(locals())
    systems.load(systems.names)
    app = application(systems, Known(queries, qrels), [*HOSTS, host] if host not in ("0.0.0.0", "::") else ["*"])
    config = uvicorn.Config(app, host=host, port=port, log_level="warning", lifespan="off", ws="none")
    server = uvicorn.Server(config)
    socket = config.bind_socket()
    socket.listen(BACKLOG)  # from here on a browser waits rather than being turned away
    print(f"http://{host}:{socket.getsockname()[1]}/  (Ctrl-C ends it)", flush=True)
    server.run(sockets=[socket])


def _systems(options: dict[str, Any]) -> Systems:
    """The systems of a command's options: what they say, and of the rest what the run did."""
    model, reranker, precision = options["model"], options["reranker"], resolved(options["precision"])
    if not model.is_dir():
        raise Refusal(f"{model}: no such folder; `make` trains a retriever")
    ran = remembered(options["lock"])
    ran["candidates"] = min(ran["candidates"], MOST)
    known = ran | {name: options[name] for name in ran if options.get(name) is not None}
    settings = Settings(model, reranker if reranker.is_dir() else None, precision=precision, **known)
    source = Source(model, options["tokens"], options["passages"], settings.longest, precision)
    return Systems(opened(options["index"], source), settings)
