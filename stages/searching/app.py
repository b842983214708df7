"""The page and what it asks: one HTML file, JSON answers, and headers that let no foreign script run."""

import base64
import re
from dataclasses import asdict
from hashlib import sha256
from pathlib import Path
from typing import Any

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse
from starlette.routing import Route

from stages.artifacts.refusal import Refusal
from stages.searching.known import Known
from stages.searching.systems import QUERY, Systems

PAGE = Path(__file__).parent / "page.html"
DEEPEST = 100  # passages in one answer
EXAMPLES = 200
HOSTS = ["127.0.0.1", "localhost"]  # other names for this machine are somebody's trick


def application(systems: Systems, known: Known, hosts: list[str] | None = None) -> Starlette:
    """The page at ``/``, its data at ``/search`` and ``/about``; answered in threads, several at once."""
    page = PAGE.read_text("utf-8")
    headers = {"Content-Security-Policy": policy(page), "X-Content-Type-Options": "nosniff"}
    headers |= {"Referrer-Policy": "no-referrer", "Cache-Control": "no-store"}

    def root(request: Request) -> HTMLResponse:
        return HTMLResponse(page, headers=headers)

    def about(request: Request) -> JSONResponse:
        told = {"systems": systems.names, "passages": len(systems.library), "query": QUERY}
        return JSONResponse(told | {"examples": known.examples[:EXAMPLES]}, headers=headers)

    def search(request: Request) -> JSONResponse:
        try:
            return JSONResponse(answer(systems, known, dict(request.query_params)), headers=headers)
        except Refusal as refusal:
            return JSONResponse({"error": str(refusal)}, status_code=400, headers=headers)

    routes = [Route("/", root), Route("/about", about), Route("/search", search)]
    allowed = Middleware(TrustedHostMiddleware, allowed_hosts=hosts or HOSTS)
    return Starlette(routes=routes, middleware=[allowed])


def answer(systems: Systems, known: Known, asked: dict[str, str]) -> dict[str, Any]:
    """What a system finds, each passage with whether it is known to answer, and the rank of the first that does.

    Raises:
        Refusal: a parameter is missing or wrong.
    """
    query, depth = asked.get("q", ""), asked.get("k", "10")
    if not re.fullmatch(r"[1-9]\d{0,2}", depth) or int(depth) > DEEPEST:
        raise Refusal(f"k: {depth[:20]!r} is not a number from 1 to {DEEPEST}")
    hits, gold = systems.search(asked.get("system", "retriever"), query, int(depth)), known.gold(query)
    return {"known": len(gold), "hits": [asdict(hit) | {"gold": hit.passage_id in gold} for hit in hits]}


def policy(page: str) -> str:
    """A Content-Security-Policy by which only the page's own script and style run, and talk only to this server."""
    script, style = (_hash(re.findall(rf"<{tag}>(.*?)</{tag}>", page, re.DOTALL)) for tag in ("script", "style"))
    own = f"script-src {script}; style-src {style}; connect-src 'self'; img-src data:"
    return f"default-src 'none'; {own}; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"


def _hash(parts: list[str]) -> str:
    digests = (base64.b64encode(sha256(part.encode()).digest()).decode() for part in parts)
    return " ".join(f"'sha256-{digest}'" for digest in digests)
