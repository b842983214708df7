"""What this machine has for Isthmus, and what each missing thing costs."""

import typer

from stages.surveying.checks import Check, everything

FINE = "Nothing needed is missing. A line with - works, at the cost below it."
MARKS = {"ok": "ok", "without": "-", "missing": "MISSING"}


def doctor() -> None:
    """Check what Isthmus uses: Java, Faiss, GPU, disk, the hub, … Status 1 where something needed is missing."""
    checks = list(everything())
    typer.echo("\n".join(line for check in checks for line in lines(check)))
    missing = [check.name for check in checks if check.state == "missing"]
    typer.echo(f"\n{'Needed and missing: ' + ', '.join(missing) if missing else FINE}")
    if missing:
        raise typer.Exit(1)


def lines(check: Check) -> list[str]:
    """One line of the table, and one below it for the cost."""
    first = f"{check.name:9} {MARKS[check.state]:8} {check.found}"
    return [first, f"{'':19}{check.cost}"] if check.cost else [first]
