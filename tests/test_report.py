"""The chapter report: one page, the same bytes for the same run, charts drawn, links that lead somewhere."""

from collections import Counter
from html.parser import HTMLParser
from pathlib import Path

import pytest

from stages.artifacts.refusal import Refusal
from stages.report import report
from tests.chromium import browse
from tests.reporting.build import HOSTILE, ROWS, build, options

VOID = {"meta", "link", "br", "img"}


class Page(HTMLParser):
    """Tags, ids, links and text of a page; every tag must be closed where it was opened."""

    def __init__(self, html: str):
        super().__init__()
        self.tags: Counter[str] = Counter()
        self.ids: list[str] = []
        self.links: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.open: list[str] = []
        self.text = ""
        self.feed(html)
        self.close()
        assert not self.open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags[tag] += 1
        self.attributes += attrs
        self.ids += [value or "" for name, value in attrs if name == "id"]
        self.links += [value or "" for name, value in attrs if name in ("href", "src")]
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        self.handle_endtag(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag not in VOID:
            assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("report") / "run"
    build(folder, hostile=True)
    return folder


def written(folder: Path, out: Path) -> str:
    told = [folder / "metrics" / "retriever1.json"]
    report(folder / "params.yaml", folder / "tiny.yaml", out, **options(folder), told=told)  # type: ignore[arg-type]
    return out.read_text("utf-8")


@pytest.fixture(scope="module")
def html(folder: Path) -> str:
    return written(folder, folder / "metrics" / "report.html")


def test_the_page_has_what_it_promises(html: str) -> None:
    page = Page(html)
    assert all(name in page.text for name in ROWS)
    for word in ("negatives a query", "median rank by bm25", "false, low estimate", "removed: known answers"):
        assert word in page.text, word
    for word in ("What ran", "retriever beside bm25", "retriever beside backbone", "perhaps an answer", "torch"):
        assert word in page.text, word
    assert page.tags["svg"] == 2 + 2 + 3 + 1  # chain, curves, ranks by three runs, difficulty
    assert page.tags["mark"] > 10


def test_the_same_run_gives_the_same_bytes(folder: Path, html: str) -> None:
    assert written(folder, folder / "again.html") == html


def test_no_network_no_script_and_links_that_lead_somewhere(html: str) -> None:
    page = Page(html)
    assert page.tags["script"] == page.tags["img"] == page.tags["iframe"] == 0
    assert len(set(page.ids)) == len(page.ids)
    assert all(link == "data:," or (link.startswith("#") and link[1:] in page.ids) for link in page.links)
    assert not [name for name, _ in page.attributes if name.startswith("on")]
    assert "url(http" not in html


def test_what_people_wrote_stays_text(html: str) -> None:
    assert HOSTILE in Page(html).text.replace("\n", " ")
    assert "<script" not in html


def test_a_browser_draws_it_and_has_no_complaint(folder: Path, html: str, tmp_path: Path) -> None:
    assert html
    dom, said = browse((folder / "metrics" / "report.html").as_uri(), tmp_path / "profile")
    assert said == []
    assert Page(html).tags["svg"] == dom.count("<svg")
    assert "<title>Isthmus: report of recipe tiny</title>" in dom


def test_a_row_that_is_not_there_has_no_cases(folder: Path, tmp_path: Path) -> None:
    out, paths = tmp_path / "report.html", options(folder)
    report(folder / "params.yaml", folder / "tiny.yaml", out, **paths, row="reranker")  # type: ignore[arg-type]
    assert "beside" not in Page(out.read_text("utf-8")).text


def test_refusals_name_the_file(folder: Path, tmp_path: Path) -> None:
    wrong = tmp_path / "params.yaml"
    wrong.write_text("- a list\n")
    paths = options(folder)
    with pytest.raises(Refusal, match=r"params\.yaml: not a mapping of parameters"):
        report(wrong, folder / "tiny.yaml", tmp_path / "r.html", **paths)  # type: ignore[arg-type]
    assert list(tmp_path.iterdir()) == [wrong]
