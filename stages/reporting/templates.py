"""Templates beside the code that fills them."""

from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined


def environment(folder: Path, *, escaped: bool) -> Environment:
    """The templates of a folder; what they lack is an error.

    Args:
        escaped: what is put into HTML has to be; what is put into Markdown must not.
    """
    made = Environment(loader=FileSystemLoader(folder), autoescape=escaped, undefined=StrictUndefined)
    made.trim_blocks = made.lstrip_blocks = made.keep_trailing_newline = True
    return made
