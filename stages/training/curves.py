"""Training curves: through DVCLive where it is installed, in memory where it is not."""

from pathlib import Path
from typing import Any


class Curves:
    """One folder of curves, rewritten whole by every run: a resumed run first replays what it had logged."""

    def __init__(self, folder: Path | None):
        self.live: Any = None
        if folder is not None:
            try:
                self.live = _live(folder)
            except ModuleNotFoundError:  # a machine that has only what training needs
                return

    def log(self, step: int, values: dict[str, float]) -> None:
        """Log the values of one step."""
        if self.live is not None:
            self.live.step = step
            for name, value in values.items():
                self.live.log_metric(name, value)

    def close(self) -> None:
        """Write the latest value of every curve beside the curves."""
        if self.live is not None:
            self.live.end()


def _live(folder: Path) -> Any:
    from dvclive import Live
    from scmrepo.exceptions import SCMError

    class Alone(Live):  # type: ignore[misc]
        """Looks for no repository."""

        def _init_dvc(self) -> None:
            pass

    plain = {"resume": False, "report": None, "save_dvc_exp": False, "dvcyaml": None, "monitor_system": False}
    try:
        return Live(str(folder), **plain)
    except SCMError:  # a Git repository without a commit: DVCLive asks for the newest one
        return Alone(str(folder), **plain)
