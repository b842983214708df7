"""Commands that README and docs/using.md show are commands that there are."""

import re
import shlex
from pathlib import Path

import pytest

from stages.__main__ import open_chapter

ROOT = Path(__file__).parents[1]
SHOWN = re.compile(r"^isthmus ([^\n#]+)|`isthmus ([^`]+)`", re.MULTILINE)


def shown(name: str) -> list[str]:
    """What stands behind ``isthmus`` in a page, at the start of a line or between backticks."""
    return ["".join(found).strip() for found in SHOWN.findall((ROOT / name).read_text("utf-8"))]


@pytest.mark.parametrize("line", sorted({*shown("README.md"), *shown("docs/using.md")}))
def test_a_command_of_the_documentation_parses(line: str) -> None:
    chapter, *rest = shlex.split(line)
    open_chapter(chapter).make_context(chapter, rest)  # raises where something is off


def test_pages_show_commands() -> None:
    assert len(shown("README.md")) >= 5
    assert len(shown("docs/using.md")) >= 8


@pytest.mark.parametrize("name", ["README.md", "docs/using.md"])
def test_pictures_and_pages_that_are_linked_exist(name: str) -> None:
    page = ROOT / name
    for link in re.findall(r"\]\(((?!http)[^)#]+)\)", page.read_text("utf-8")):
        assert (page.parent / link).exists(), link
