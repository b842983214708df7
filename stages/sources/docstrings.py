"""``docstrings:PACKAGE,PACKAGE,…``: the documentation of installed packages, read from their files.

Nothing is imported. A docstring's first sentence is a query and the rest of it is what answers the query, which is a
structure that its authors gave it (PEP 257: "a summary line just like a one-line docstring, followed by a blank line,
followed by a more elaborate description"). All passages of the docstring are relevant: all of them describe what the
sentence names. A page (document) is a module with its functions, or a class with its methods; its name is the title.
"""

import ast
import re
import warnings
from collections import Counter
from collections.abc import Iterable, Iterator
from functools import cached_property
from importlib.util import find_spec
from inspect import cleandoc
from pathlib import Path
from typing import NamedTuple

from stages.artifacts.identity import WORDS, normalised
from stages.artifacts.refusal import Refusal
from stages.sources import sentences
from stages.sources.collection import Judgement, Passage, Query
from stages.sources.lots import lot

TRAIN, DEV = 0.65, 0.75  # a name's lot below the first is a training name, below the second a development name
SHORTEST_QUERY, LONGEST_QUERY = 3, 40  # words: fewer are a heading, more are no sentence
SHORTEST_BODY = 8  # words: fewer say nothing

RULE = re.compile(r"[ \t]*([-=~^*#+`'.:_\"|])\1*(?:[ \t|+]*\1{2,})*[ \t|+]*")  # underlines, borders of tables
SLOT = re.compile(r"[ \t]*(?:%\([^)]*\)s|\{\w+\}|%\w+)[ \t]*")  # filled in by code that does not run here
TESTS = re.compile(r"tests?|test_.*|.*_test|conftest")

Documented = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


class Docstring(NamedTuple):
    """One documented name."""

    page: str
    name: str
    text: str
    path: str
    row: int


class Entry(NamedTuple):
    """One documented name, taken apart."""

    page: str
    name: str
    query: str
    passages: list[str]
    path: str
    row: int


class Docstrings:
    """The `Source`. The documentation of the packages is held in memory: it is some megabytes."""

    def __init__(self, packages: list[str], words: int):
        self.roots = {package: _root(package) for package in packages}
        self.words = words

    @cached_property
    def entries(self) -> list[Entry]:
        """All names whose documentation says something, page by page; of equal passages only the first."""
        seen: set[str] = set()
        entries = []
        for docstring in self.docstrings():
            query, body = take_apart(docstring.text)
            passages = [text for text in sentences.passages(body, self.words) if _is_new(text, seen)]
            if passages:
                entries.append(Entry(docstring.page, docstring.name, query, passages, docstring.path, docstring.row))
        return entries

    @cached_property
    def asked(self) -> list[Entry]:
        """The entries whose first sentence is a query: neither too short nor too long, and of no other name."""
        keys = [normalised(entry.query) for entry in self.entries]
        counts = Counter(keys)
        return [
            entry
            for entry, key in zip(self.entries, keys, strict=True)
            if counts[key] == 1 and SHORTEST_QUERY <= len(key.split()) <= LONGEST_QUERY
        ]

    def docstrings(self) -> Iterator[Docstring]:
        """The public docstrings of all packages; of equal names only the first."""
        for package, root in self.roots.items():
            for module, path in modules(package, root):
                seen: set[str] = set()
                for docstring in _documented(_parse(path), module, module, str(path)):
                    if docstring.name not in seen:
                        seen.add(docstring.name)
                        yield docstring

    def count(self) -> int:
        return sum(len(entry.passages) for entry in self.entries)

    def passages(self) -> Iterator[Passage]:
        positions: Counter[str] = Counter()
        for entry in self.entries:
            for number, text in enumerate(entry.passages):
                position = positions[entry.page]
                positions[entry.page] += 1
                name = f"{entry.name}#{number}"
                yield Passage(name, entry.page, position, entry.page, text, entry.path, entry.row)

    def queries(self) -> Iterator[Query]:
        for entry in self.asked:
            yield Query(entry.name, entry.query, entry.path, entry.row)

    def judgements(self) -> Iterator[Judgement]:
        for entry in self.asked:
            for number in range(len(entry.passages)):
                passage = f"{entry.name}#{number}"
                yield Judgement(split_of(entry.name), entry.name, passage, 1, entry.path, entry.row)


def read(rest: str, words: int) -> Docstrings:
    """The reader of ``docstrings:rest``. Raises `Refusal` where a package is not installed as Python source."""
    packages = rest.split(",")
    for package, times in Counter(packages).items():
        if times > 1:
            raise Refusal(f"source docstrings: package {package} is named {times} times")
    return Docstrings(packages, words)


def split_of(name: str) -> str:
    """65 % of all names are for training, 10 % for development, 25 % for testing; a name never moves."""
    drawn = lot(name, "split")
    return "train" if drawn < TRAIN else "dev" if drawn < DEV else "test"


def take_apart(docstring: str) -> tuple[str, str]:
    """(query, body): the first sentence on one line, and the rest, in which that sentence does not occur.

    A heading of a word or two is no query, and its words are wanted in the body.
    """
    text = readable(docstring)
    end = sentences.first_sentence(text)
    query = " ".join(text[:end].split())
    body = without(text[end:], query) if len(WORDS.findall(query)) >= SHORTEST_QUERY else text[end:]
    return query, body if len(body.split()) >= SHORTEST_BODY else ""


def readable(docstring: str) -> str:
    """The docstring without its indentation, underlines and unfilled slots; a heading at the top stands alone."""
    lines = cleandoc(docstring).split("\n")
    kept: list[str] = []
    for number, line in enumerate(lines):
        if line.strip() and RULE.fullmatch(line) and len(line.strip()) > 1:
            kept += [""] if number == 1 or (number == 2 and not kept[0]) else []
        elif not SLOT.fullmatch(line):
            kept.append(line)
    return "\n".join(kept).strip()


def without(text: str, sentence: str) -> str:
    """``text`` without any occurrence of the sentence's words, whatever their case and punctuation."""
    words = r"\W+".join(map(re.escape, WORDS.findall(sentence)))
    pattern = re.compile(rf"(?<!\w){words}(?!\w)[.!?]*", re.I)
    found = len(words)
    while found:
        text, found = pattern.subn(" ", text)
    return text


def modules(package: str, root: Path) -> Iterator[tuple[str, Path]]:
    """(dotted name, file) of every public module below ``root``, in the order of the names' parts."""
    files = [root] if root.is_file() else sorted(root.rglob("*.py"), key=lambda path: path.with_suffix("").parts)
    for path in files:
        inside = () if root.is_file() else path.relative_to(root).with_suffix("").parts
        parts = (package, *(inside[:-1] if inside[-1:] == ("__init__",) else inside))
        if not any(part.startswith("_") or TESTS.fullmatch(part) for part in parts[1:]):
            yield ".".join(parts), path


def _root(package: str) -> Path:
    """The folder of a package, or the file of a module. A top-level name's spec is found without importing it."""
    try:
        spec = find_spec(package) if package.isidentifier() else None
    except ValueError:  # a module without a spec, such as __main__
        spec = None
    if spec is None:
        raise Refusal(f"source docstrings: package {package} is not installed")
    places = [Path(place) for place in spec.submodule_search_locations or [spec.origin or ""]]
    if not (places and (places[0].is_dir() or places[0].suffix == ".py")):
        raise Refusal(f"source docstrings: package {package} has no Python source")
    return places[0]


def _parse(path: Path) -> ast.Module:
    """The file's syntax tree; its author's warnings are not ours."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return ast.parse(path.read_bytes())
        except (OSError, SyntaxError, ValueError) as error:
            raise Refusal(f"{path}: cannot be read as Python: {error}") from error


def _documented(node: Documented, page: str, name: str, path: str) -> Iterator[Docstring]:
    """The node's docstring and those of the public names in it: first its functions, then its classes' pages."""
    text = ast.get_docstring(node, clean=False)
    if text:
        yield Docstring(page, name, text, path, getattr(node, "lineno", 1))
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
        return
    inside = [child for child in _defined(node.body) if not child.name.startswith("_")]
    for child in sorted(inside, key=lambda child: isinstance(child, ast.ClassDef)):
        own = f"{name}.{child.name}"
        yield from _documented(child, own if isinstance(child, ast.ClassDef) else page, own, path)


def _defined(body: Iterable[ast.stmt]) -> Iterator[ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef]:
    """What a block defines, in conditions and attempts too."""
    for node in body:
        if isinstance(node, (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            yield node
        elif isinstance(node, (ast.If, ast.Try)):
            handlers = [line for handler in getattr(node, "handlers", []) for line in handler.body]
            yield from _defined([*node.body, *handlers, *node.orelse])


def _is_new(text: str, seen: set[str]) -> bool:
    key = normalised(text)
    new = key not in seen
    seen.add(key)
    return new
