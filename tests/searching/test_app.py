"""The page over a real server: what strangers write stays text, bad requests are refused, many are answered at once."""

import json
import threading
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import uvicorn

from stages.artifacts.tables import Queries
from stages.searching.app import PAGE, application, policy
from tests.chromium import browse
from tests.conftest import World
from tests.reporting.build import HOSTILE
from tests.searching import build


@pytest.fixture(scope="module")
def data(world: World, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("hostile")
    build.hostile(world, folder)
    return folder


@pytest.fixture(scope="module")
def server(world: World, data: Path) -> Iterator[str]:
    """The address of a server in a thread."""
    app = application(build.systems(world, data, data), build.known(data))
    config = uvicorn.Config(app, port=0, log_level="warning", lifespan="off", ws="none")
    socket = config.bind_socket()
    socket.listen(128)
    running = uvicorn.Server(config)
    thread = threading.Thread(target=running.run, kwargs={"sockets": [socket]}, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{socket.getsockname()[1]}"
    running.should_exit = True
    thread.join(timeout=30)
    socket.close()


def get(address: str, **headers: str) -> tuple[int, Any, str]:
    """(status, headers, body) of a request."""
    try:
        with urllib.request.urlopen(urllib.request.Request(address, headers=headers), timeout=120) as answer:
            return answer.status, answer.headers, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.headers, error.read().decode()


def asked(server: str, **params: str) -> tuple[int, Any]:
    status, _, body = get(f"{server}/search?{urllib.parse.urlencode(params)}")
    return status, json.loads(body)


@pytest.mark.parametrize("system", ["bm25", "retriever", "fused", "reranked"])
def test_a_known_query_has_its_answers_marked(server: str, data: Path, system: str) -> None:
    row = Queries.read(data / "queries.parquet").to_pylist()[3]
    status, found = asked(server, q=row["text"], system=system, k="100")
    assert status == 200
    assert found["known"] >= 1
    assert row["query_id"].removeprefix("q-") in {hit["passage_id"] for hit in found["hits"] if hit["gold"]}


def test_about_tells_what_there_is(server: str) -> None:
    told = json.loads(get(f"{server}/about")[2])
    assert told["systems"] == ["bm25", "retriever", "fused", "reranked"]
    assert told["passages"] == 60
    assert told["examples"]


@pytest.mark.parametrize(
    ("params", "complaint"),
    [
        ({"q": "x" * 1001}, "query: 1001 characters, at most 1000 are read"),
        ({"q": "x", "k": "0"}, "k: '0' is not a number from 1 to 100"),
        ({"q": "x", "k": "101"}, "k: '101' is not a number from 1 to 100"),
        ({"q": "x", "k": "ten"}, "k: 'ten' is not a number from 1 to 100"),
        ({"q": "x", "system": "<b>"}, "system '<b>': expected one of bm25, retriever, fused, reranked"),
    ],
)
def test_bad_requests_are_refused_in_one_line(server: str, params: dict[str, str], complaint: str) -> None:
    assert asked(server, **params) == (400, {"error": complaint})


def test_headers_let_nothing_foreign_run(server: str) -> None:
    status, headers, body = get(f"{server}/")
    assert status == 200
    assert headers["Content-Security-Policy"] == policy(body) == policy(PAGE.read_text("utf-8"))
    assert "unsafe" not in headers["Content-Security-Policy"]
    assert headers["X-Content-Type-Options"] == "nosniff"
    _, headers, _ = get(f"{server}/search?q=x")
    assert headers["Content-Type"] == "application/json"


def test_another_name_for_this_machine_is_refused(server: str) -> None:
    assert get(f"{server}/search?q=x", Host="evil.example")[0] == 400


def test_the_page_parses_no_html() -> None:
    page = PAGE.read_text("utf-8")
    assert not any(way in page for way in ("innerHTML", "outerHTML", "insertAdjacent", "document.write", "eval("))
    assert "http://" not in page
    assert "https://" not in page


def test_many_at_once_get_their_own_answers(server: str, data: Path) -> None:
    queries = Queries.read(data / "queries.parquet")["text"].to_pylist()[:16]
    alone = [asked(server, q=query, k="5") for query in queries]
    with ThreadPoolExecutor(8) as threads:
        together = list(threads.map(lambda query: asked(server, q=query, k="5"), queries))
    for (status, one), (_, other) in zip(alone, together, strict=True):
        assert status == 200
        assert [hit["passage_id"] for hit in one["hits"]] == [hit["passage_id"] for hit in other["hits"]]


def test_a_browser_shows_markup_as_text(server: str, tmp_path: Path) -> None:
    query = urllib.parse.quote(HOSTILE)
    dom, said = browse(f"{server}/#{query}", tmp_path / "profile")
    assert said == []
    assert "<title>Isthmus: search</title>" in dom
    assert dom.count("<li>") + dom.count("<li class") == 20
    assert "&lt;script&gt;" in dom
    assert dom.count("<script") == 1
    assert "<img" not in dom
