"""Negatives mined anew while a retriever is trained, by the retriever itself (ANCE, Xiong et al. 2021; SEED).

Training stops at fixed steps with its state on disk; what the model then ranks first is kept beside that state. So a
run that is killed goes on as if it had not been: a stretch of training always begins with the same negatives.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

from stages.artifacts.judgements import Asked
from stages.artifacts.scratch import content_hash
from stages.ranking.corpus import Corpus, Reading, vectorised
from stages.ranking.towers import Towers, save_towers
from stages.training import checkpoint
from stages.training.loop import Report
from stages.training.processes import Processes


@dataclass(frozen=True)
class Refresher:
    """Ranks the corpus for the training queries with a model as it is now.

    Attributes:
        start: the model folder that training began with, for its tokenizer.
        state: the folder of the resumable state; what is mined is kept below it.
    """

    towers: Towers
    start: Path
    corpus: Corpus
    asking: Asked
    reading: Reading
    depth: int
    state: Path
    processes: Processes

    def run(self, number: int) -> Path:
        """The run of the number-th refresh, mined unless it is there already."""
        folder = self.state / f"refresh-{number}"
        out = folder / "run.parquet"
        # the first process looks for all: on a shared file system another may not see yet what is there
        if not self.processes.agreed([str(out)] if self.processes.first and out.is_file() else []):
            if self.processes.first:
                save_towers(self.towers, self.start, folder / "model")
            self.processes.wait()
            texts = f"{content_hash(Path(self.asking.path))} train"
            found = vectorised(folder / "model", self.corpus, self.asking, texts, self.reading, self.processes)
            if self.processes.first:
                found.search(self.corpus.ids, out, self.asking, self.depth)
        self.processes.wait()
        return out


def stretches(steps: int, refreshes: int, state: Path) -> Iterator[tuple[int, int]]:
    """Yield (number, last step) of the stretches of training that are not yet over, of equal length.

    One that has just ended is among them: training then only restores its state.
    """
    done = [int(folder.name.removeprefix("step-")) for folder in checkpoint.states(state)]
    for number in range(refreshes + 1):
        end = round(steps * (number + 1) / (refreshes + 1))
        if not done or end >= max(done):
            yield number, end


@dataclass
class Total:
    """One report of all stretches."""

    report: Report = field(default_factory=Report)

    def add(self, part: Report) -> None:
        """A stretch's report, whose history is that of all before it, too."""
        seconds, tokens = self.report.seconds + part.seconds, self.report.tokens + part.tokens
        self.report = replace(part, seconds=seconds, tokens=tokens)
