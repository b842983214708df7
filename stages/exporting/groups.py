"""Training groups as Tevatron reads them: a JSON object a query, texts included.

https://github.com/texttron/tevatron: query_id, query, positive_passages and negative_passages of docid, title, text.
"""

import json
from pathlib import Path

import numpy as np

from stages.artifacts.files import whole
from stages.artifacts.judgements import Asked
from stages.exporting.shelf import Shelf, shelf
from stages.ranking.groups import Groups, Inputs, Rules, read_groups
from stages.training.progress import Progress


def tevatron(inputs: Inputs, rules: Rules, negatives: int, out: Path) -> int:
    """Write the groups that training would form; returns how many.

    Args:
        negatives: hard negatives of a query, best first, at most.
    """
    asking, _, groups = read_groups(inputs, rules, seed=0, fraction=1.0)
    with (
        shelf(inputs.passages) as texts,
        whole(out) as partial,
        partial.open("w", encoding="utf-8", newline="\n") as file,
        Progress("export", len(groups), "groups") as bar,
    ):
        for group in range(len(groups)):
            file.write(_line(asking, groups, group, negatives, texts))
            bar.advance()
    return len(groups)


def _line(asking: Asked, groups: Groups, group: int, negatives: int, texts: Shelf) -> str:
    query, of = int(groups.queries[group]), np.array([group])
    told = {
        "query_id": asking.ids[query].as_py(),
        "query": asking.texts[query],
        "positive_passages": texts.take(groups.positives.take(of).values),
        "negative_passages": texts.take(groups.negatives.take(of, negatives).values),
    }
    return json.dumps(told, ensure_ascii=False) + "\n"
