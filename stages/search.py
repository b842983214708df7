"""A finished run to be searched: on the command line, or on a page of this machine."""

import sys
import textwrap
import time
from pathlib import Path
from typing import Annotated, Literal

import typer

from stages.artifacts.refusal import Refusal
from stages.searching.index import Source, opened
from stages.searching.known import Known
from stages.searching.systems import Settings, Systems

ModelPath = Annotated[Path, typer.Option(help="Model folder of the retriever.")]
RerankerPath = Annotated[Path, typer.Option(help="Model folder of the cross-encoder; without it nothing is re-ranked.")]
TokensPath = Annotated[Path, typer.Option(help="Tokens table of the corpus.")]
PassagesPath = Annotated[Path, typer.Option(help="Passages table.")]
QueriesPath = Annotated[Path, typer.Option(help="Queries table: known queries' answers are marked.")]
QrelsPath = Annotated[Path, typer.Option(help="Qrels table.")]
IndexPath = Annotated[Path, typer.Option(help="Folder of the index; built where it is missing or out of date.")]
Longest = Annotated[int, typer.Option(min=8, help="Pieces of a passage, and of a pair, special ones included.")]
LongestQuery = Annotated[int, typer.Option(min=3, help="Pieces of a query, special ones included.")]
Precision = Annotated[Literal["bf16", "fp32"], typer.Option(help="Precision of the models.")]
Candidates = Annotated[int, typer.Option(min=1, help="Passages that are re-ranked.")]
Prior = Annotated[float, typer.Option(min=0.0, help="Weight of the retriever's score beside the re-ranker's logit.")]

MODEL, RERANKER, INDEX = Path("models/retriever"), Path("models/reranker"), Path(".isthmus/index")
TOKENS, PASSAGES = Path("data/tokens.parquet"), Path("data/passages.parquet")
QUERIES, QRELS = Path("data/queries.parquet"), Path("data/qrels.parquet")
WIDTH = 100  # characters of a line on the terminal
BACKLOG = 128  # connections that wait
SHOWN = 400  # characters of a passage there


def search(
    query: Annotated[str, typer.Argument(help="What is looked for.")],
    system: Annotated[Literal["bm25", "retriever", "reranked"], typer.Option(help="Who ranks.")] = "retriever",
    top: Annotated[int, typer.Option(min=1, max=1000, help="Passages shown.")] = 10,
    model: ModelPath = MODEL,
    reranker: RerankerPath = RERANKER,
    tokens: TokensPath = TOKENS,
    passages: PassagesPath = PASSAGES,
    queries: QueriesPath = QUERIES,
    qrels: QrelsPath = QRELS,
    index: IndexPath = INDEX,
    longest: Longest = 128,
    longest_query: LongestQuery = 32,
    precision: Precision = "bf16",
    candidates: Candidates = 10,
    prior: Prior = 50.0,
) -> None:
    """Print the best passages for a query, with their scores; known answers are starred."""
    began = time.monotonic()
    settings = _settings(model, reranker, longest, longest_query, precision, candidates, prior)
    systems = Systems(opened(index, Source(model, tokens, passages, longest, precision)), settings)
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
    longest: Longest = 128,
    longest_query: LongestQuery = 32,
    precision: Precision = "bf16",
    candidates: Candidates = 10,
    prior: Prior = 50.0,
) -> None:
    """Open a page on this machine: type, and see two systems side by side."""
    import uvicorn

    from stages.searching.app import HOSTS, application

    settings = _settings(model, reranker, longest, longest_query, precision, candidates, prior)
    systems = Systems(opened(index, Source(model, tokens, passages, longest, precision)), settings)
    systems.load(systems.names)
    app = application(systems, Known(queries, qrels), [*HOSTS, host] if host not in ("0.0.0.0", "::") else ["*"])
    config = uvicorn.Config(app, host=host, port=port, log_level="warning", lifespan="off", ws="none")
    server = uvicorn.Server(config)
    socket = config.bind_socket()
    socket.listen(BACKLOG)  # from here on a browser waits rather than being turned away
    print(f"http://{host}:{socket.getsockname()[1]}/  (Ctrl-C ends it)", flush=True)
    server.run(sockets=[socket])


def _settings(
    model: Path, reranker: Path, longest: int, query: int, precision: str, candidates: int, prior: float
) -> Settings:
    if not model.is_dir():
        raise Refusal(f"{model}: no such folder; `make` trains a retriever")
    return Settings(model, reranker if reranker.is_dir() else None, longest, query, precision, candidates, prior)
