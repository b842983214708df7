"""Training curves: through DVCLive where it is installed, in memory where it is not."""

from pathlib import Path
from typing import Any


class Curves:
    """One folder of curves, rewritten whole by every run: a resumed run first replays what it had logged."""

    def __init__(self, folder: Path | None):
        self.live: Any = None
        if folder is not None:
            try:
                from dvclive import Live
            except ModuleNotFoundError:  # a machine that has only what training needs
                return
            self.live = Live(
                str(folder), resume=False, report=None, save_dvc_exp=False, dvcyaml=None, monitor_system=False
            )

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
