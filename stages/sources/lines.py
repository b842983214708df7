"""Lines of TSV and JSONL files, refused with file, row and column when they are not what they should be."""

import csv
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from stages.artifacts.refusal import Refusal

CHARACTERS = 1 << 20  # read at once from a file without lines
LARGEST = 1 << 26  # characters of an object; what is longer is no JSON
BETWEEN = re.compile(r"\s*,?\s*")  # two objects of an array


def rows(path: Path) -> Iterator[tuple[int, str]]:
    """Yield (row, line) for each line that is not blank, rows counted from 1, without the line end.

    Raises:
        Refusal: the file is missing, has nothing but blank lines, or is not UTF-8.
    """
    row = 0
    empty = True
    try:
        with path.open("rb") as file:
            for row, raw in enumerate(file, start=1):
                line = raw.decode("utf-8-sig" if row == 1 else "utf-8").rstrip("\r\n")
                if line and not line.isspace():
                    empty = False
                    yield row, line
    except UnicodeDecodeError as error:
        raise Refusal(f"{path}: row {row}: not UTF-8") from error
    except OSError as error:
        raise Refusal(f"{path}: {error.strerror}") from error
    if empty:
        raise Refusal(f"{path}: empty file")


def count_lines(path: Path) -> int:
    """About as many lines as the file has, 0 where it cannot be read."""
    try:
        with path.open("rb") as file:
            return sum(block.count(b"\n") for block in iter(lambda: file.read(1 << 20), b""))
    except OSError:
        return 0


def json_rows(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield (row, object). Raises `Refusal` as `rows` does, and where a line is not a JSON object."""
    for row, line in rows(path):
        try:
            value = json.loads(line)
        except ValueError as error:
            raise Refusal(f"{path}: row {row}: not JSON: {error}") from error
        if not isinstance(value, dict):
            raise Refusal(f"{path}: row {row}: not a JSON object")
        yield row, value


def json_array(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield (number from 1, object) of a file that is one JSON array of objects, however long, without holding it.

    Raises:
        Refusal: the file is missing, is not UTF-8, or is no array of objects.
    """
    row, held, decoder, begun = 0, "", json.JSONDecoder(), False
    try:
        with path.open(encoding="utf-8-sig") as file:
            while more := file.read(CHARACTERS):
                held += more
                while (start := _next(held, begun)) < len(held):
                    try:
                        value, end = decoder.raw_decode(held, start)
                    except ValueError as error:
                        if len(held) > LARGEST:
                            raise Refusal(f"{path}: row {row + 1}: not JSON: {error}") from error
                        break  # cut by the end of what has been read, or no JSON: told below
                    if not isinstance(value, dict):
                        raise Refusal(f"{path}: row {row + 1}: not a JSON object")
                    row, held, begun = row + 1, held[end:], True
                    yield row, value
    except UnicodeDecodeError as error:
        raise Refusal(f"{path}: row {row + 1}: not UTF-8") from error
    except OSError as error:
        raise Refusal(f"{path}: {error.strerror}") from error
    if held.strip() != "]" or not row:
        raise Refusal(f"{path}: row {row + 1}: not a JSON array of objects")


def tsv_rows(path: Path, count: int, longest: int) -> Iterator[tuple[int, list[str]]]:
    """Yield (row, ``count`` cells) of a TSV file whose cells may be quoted, as Python's csv writes them.

    Raises:
        Refusal: the file is missing, empty or not UTF-8, a row has other cells, or one is over ``longest`` characters.
    """
    row, limit = 0, csv.field_size_limit(longest)
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            lines = csv.reader(file, delimiter="\t")
            for cells in lines:
                row = lines.line_num
                if not cells:
                    continue
                if len(cells) != count:
                    raise Refusal(f"{path}: row {row}: {len(cells)} columns, expected {count}")
                yield row, cells
    except UnicodeDecodeError as error:
        raise Refusal(f"{path}: row {row + 1}: not UTF-8") from error
    except csv.Error as error:
        raise Refusal(f"{path}: row {row + 1}: {error}") from error
    except OSError as error:
        raise Refusal(f"{path}: {error.strerror}") from error
    finally:
        csv.field_size_limit(limit)
    if not row:
        raise Refusal(f"{path}: empty file")


def field(value: dict[str, Any], column: str, path: Path, row: int) -> str:
    """The string in one column of a JSON line. Raises `Refusal` where it is missing or no string."""
    if column not in value:
        raise Refusal(f"{path}: row {row}: column {column} is missing")
    if not isinstance(value[column], str):
        raise Refusal(f"{path}: row {row}: column {column} is not a string")
    text: str = value[column]
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise Refusal(f"{path}: row {row}: column {column} holds half a character (a lone surrogate)") from error
    return text


def columns(line: str, count: int, path: Path, row: int) -> list[str]:
    """The ``count`` columns of a TSV line. Raises `Refusal` where there are fewer or more."""
    found = line.split("\t")
    if len(found) != count:
        raise Refusal(f"{path}: row {row}: {len(found)} columns, expected {count}")
    return found


def grade(text: str, column: str, path: Path | str, row: int) -> int:
    """A relevance grade. Raises `Refusal` unless it is an integer that fits 8 bits."""
    try:
        value = int(text)
    except ValueError as error:
        raise Refusal(f"{path}: row {row}: column {column} is not an integer: {text!r}") from error
    if not -128 <= value <= 127:
        raise Refusal(f"{path}: row {row}: column {column} is {value}, outside -128…127")
    return value


def _next(held: str, begun: bool) -> int:
    """Where the next object of an array begins; the end where there is none yet."""
    start = 0
    if not begun:
        start = len(held) - len(held.lstrip())
        if held[start : start + 1] != "[":
            return len(held)
        start += 1
    match = BETWEEN.match(held, start)
    assert match  # it matches nothing, too
    return len(held) if held[match.end() : match.end() + 1] == "]" else match.end()
