"""A progress bar with rate and remaining time; plain lines where there is no terminal."""

import sys
import time
from types import TracebackType

from tqdm import tqdm

SECONDS_BETWEEN_LINES = 10.0


class Progress:
    """``with Progress("encode", total, "passages") as bar: bar.advance(32)``.

    ``done`` is where a resumed run starts; it does not count towards the rate.
    """

    def __init__(self, what: str, total: int, unit: str, done: int = 0):
        self.what, self.total, self.unit, self.start, self.done = what, total, unit, done, done
        self.began = self.said = time.monotonic()
        self.bar = None
        if sys.stderr.isatty():
            self.bar = tqdm(desc=what, total=total, unit=f" {unit}", initial=done, dynamic_ncols=True)

    def advance(self, count: int = 1, note: str = "") -> None:
        """Count ``count`` more units; ``note`` (losses, say) is shown behind the rate."""
        self.done += count
        if self.bar is not None:
            if note:
                self.bar.set_postfix_str(note, refresh=False)
            self.bar.update(count)
        elif time.monotonic() - self.said >= SECONDS_BETWEEN_LINES:
            self.say(note)

    def say(self, note: str = "") -> None:
        """Print one plain line."""
        self.said = time.monotonic()
        rate = (self.done - self.start) / max(self.said - self.began, 1e-9)
        left = f"{(self.total - self.done) / rate:.0f} s left" if rate and self.done < self.total else "done"
        line = f"{self.what}: {self.done:,}/{self.total:,} {self.unit}, {rate:,.1f}/s, {left}"
        print(f"{line}, {note}" if note else line, file=sys.stderr, flush=True)

    def __enter__(self) -> "Progress":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.bar is not None:
            self.bar.close()
        elif kind is None:
            self.say()
