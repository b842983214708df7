"""GLUE's files, in both forms that are about."""

import re
from pathlib import Path

import numpy as np
import pytest

from stages.artifacts.refusal import Refusal
from stages.understanding.tasks import TASKS, read_examples

FIXTURES = Path(__file__).parents[3] / "shared" / "data" / "fixtures" / "glue"
needs_data = pytest.mark.skipif(not FIXTURES.is_dir(), reason="the real collections are not beside the project")


@needs_data
@pytest.mark.parametrize(
    ("task", "file", "count", "first", "mean"),
    [
        ("cola", "CoLA/in_domain_train.tsv", 8551, "Our friends won't buy this analysis", 0.704),
        ("cola", "CoLA/out_of_domain_dev.tsv", 516, "Somebody just left - guess who.", 0.686),
        ("sst-2", "SST-2/dev.tsv", 872, "one long string of cliches", 0.509),
        ("mrpc", "MRPC/msr-para-val.tsv", 500, "Stocks have rallied sharply", 0.692),
        ("sts-b", "STS-B/sts-dev.csv", 1500, "A man with a hard hat is dancing.", 2.36),
    ],
)
def test_real_files(task: str, file: str, count: int, first: str, mean: float) -> None:
    found = read_examples(FIXTURES / file, TASKS[task])
    assert abs(len(found) - count) <= 1  # a last line without its end
    assert found.skipped == 0
    assert found.texts[0][0].startswith(first)
    assert found.labels.mean() == pytest.approx(mean, abs=0.03)
    assert len(found.texts) == len(TASKS[task].texts)


@pytest.mark.parametrize(
    ("task", "text", "texts", "labels"),
    [
        ("sst-2", "sentence\tlabel\ngood\t1\n", [["good"]], [1]),
        (
            "qqp",
            "id\tqid1\tqid2\tquestion1\tquestion2\tis_duplicate\n1\t2\t3\ta\tb\t1\n9\tshort\n",
            [["a"], ["b"]],
            [1],
        ),
        ("qnli", "index\tquestion\tsentence\tlabel\n0\tq\ts\tnot_entailment\n", [["q"], ["s"]], [1]),
        ("mnli", "index\tsentence1\tsentence2\tlabel1\tgold_label\n0\ta\tb\tx\tneutral\n", [["a"], ["b"]], [2]),
        ("sts-b", "index\tsentence1\tsentence2\tscore\n0\ta\tb\t2.5\n", [["a"], ["b"]], [2.5]),
    ],
)
def test_files_of_the_benchmark(
    tmp_path: Path, task: str, text: str, texts: list[list[str]], labels: list[float]
) -> None:
    (tmp_path / "x.tsv").write_text(text)
    found = read_examples(tmp_path / "x.tsv", TASKS[task])
    assert found.texts == texts
    np.testing.assert_array_equal(found.labels, labels)
    assert found.skipped == (task == "qqp")


@pytest.mark.parametrize(
    ("task", "text", "line"),
    [
        ("qqp", "1\t2\n", "row 1: not a header with question1, question2, is_duplicate"),
        ("cola", "gj04\t2\t\tText\n", "row 1: label '2' is none of 0, 1"),
        ("sts-b", "a\tb\tc\td\tx\te\tf\n", "row 1: label 'x' is not a number"),
        ("sst-2", "sentence\tlabel\n", "no examples"),
    ],
)
def test_refused(tmp_path: Path, task: str, text: str, line: str) -> None:
    path = tmp_path / "x.tsv"
    path.write_text(text)
    with pytest.raises(Refusal, match=f"^{re.escape(f'{path}: {line}')}$"):
        read_examples(path, TASKS[task])
