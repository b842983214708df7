"""How estimates grow from a sample to the whole, by hand."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from stages.artifacts.documents import read_yaml
from stages.planning import span
from stages.surveying import trial
from stages.surveying.estimates import Scales, estimate, optimiser_steps
from stages.surveying.pipeline import Step, context
from stages.surveying.sample import Sizes
from stages.surveying.trial import Seen, twin

SAMPLE, WHOLE = Sizes(100, {"train": 30, "dev": 5, "test": 5}), Sizes(10_000, {"train": 960, "dev": 50, "test": 150})


def scales() -> Scales:
    return Scales(WHOLE, SAMPLE, 5.0, 5e8, 9e7, 384, (100.0, 12.0), 2)


def step(line: str, **outs: Any) -> Step:
    words = line.split()
    return Step("it", words, context(words).params, ("out",))


TABLES = "m tokens queries qrels passages out"


def test_a_retriever_takes_its_steps_and_sees_its_negatives() -> None:
    one = step(f"retriever {TABLES} --metrics x --negatives run --epochs 1.5 --batch 32 --group 4 --longest 64")
    seen = Seen(2.0, 0.25, int(4e8), {"out": 90})
    found = estimate(one, seen, scales())
    assert optimiser_steps(one.options, 960) == 45
    assert found.seconds == pytest.approx(5 + 2 + 45 * 0.25 * 4)  # tried with a batch of 8
    assert (found.negatives, found.hard, found.disk) == (127, 3, 90)
    assert found.memory == pytest.approx(5e8 + 4 * 9e7 + (4e8 - 4 * 9e7) * 4)


def test_chunks_pieces_and_budget_bound_the_memory() -> None:
    seen = Seen(0.0, 1.0, int(1e9))
    line = f"retriever {TABLES} --metrics x --batch 64 --longest 64"
    free, bound = (estimate(step(f"{line} {more}"), seen, scales()).memory for more in ("", "--chunk 1024"))
    assert bound - 5e8 - 3.6e8 == pytest.approx((free - 5e8 - 3.6e8) * 2 / 8)  # 512 pieces tried, 1,024 in a chunk
    reranker = step(f"reranker {TABLES} --metrics x --negatives run --batch 8 --group 4 --steps 7")
    assert optimiser_steps(reranker.options, 960) == 7
    assert (estimate(reranker, seen, scales()).negatives, estimate(reranker, seen, scales()).hard) == (3, 3)


def test_without_a_run_a_query_sees_the_batch_alone() -> None:
    one = step(f"retriever {TABLES} --metrics x --batch 32 --group 4")
    assert (estimate(one, Seen(0, 1, 0), scales()).negatives, estimate(one, Seen(0, 1, 0), scales()).hard) == (31, 0)


def test_mining_encodes_everything_and_ranks_every_query() -> None:
    one = step("mine m tokens queries run --splits test --depth 1000")
    speed = {"passage_tokens_per_second": 10_000.0, "query_tokens_per_second": 6_000.0}
    known = scales()
    found = estimate(one, Seen(0.1, 0.0, 0, {"run": 5_000}, {"speed": speed}), known)
    assert known.rows["run"] == (500, 150_000)
    assert found.seconds == pytest.approx(5 + 100 + 150 * 12 / 6_000 + 2 * 150 * 1e4 * 384 / 8e10 + 0.1 * 300)
    assert found.disk > 5_000 * 300
    evaluated = step("evaluate run queries qrels --metrics m --values v --trec t")
    assert estimate(evaluated, Seen(0.2, 0, 0), known).seconds == pytest.approx(2.5 + 0.2 * 300)


def test_a_rescoring_scores_its_pairs_and_keeps_the_rest() -> None:
    known = scales()
    known.rows["run"] = 40 * 100, 1_160 * 1_000
    one = step("rescore m run tokens queries qrels out --splits test --depth 10 --keep-rest")
    found = estimate(one, Seen(0.1, 0, 0, {"out": 10}, {"speed": {"pairs_per_second": 50.0}}), known)
    assert found.seconds == pytest.approx(5 + 150 * 10 / 50, abs=0.1)
    assert known.rows["out"] == (500, 150_000)


def test_a_teacher_scores_positives_beyond_its_depth() -> None:
    known = scales()
    known.sample = replace(SAMPLE, positives={"train": 50, "dev": 5})
    known.whole = replace(WHOLE, positives={"train": 2_000, "dev": 60})
    seen = Seen(0.1, 0, 0, {"out": 10}, {"speed": {"pairs_per_second": 50.0}})
    line = "rescore m run tokens queries qrels out --splits train"
    for more, pairs in {
        "--depth 10": 9_600,
        "--depth 10 --positives 1": 9_600 + 960,
        "--depth 10 --positives 64": 9_600 + 2_000,  # all that there are
        "--depth 20000 --positives 64": 960 * 10_000,  # the collection has no more
    }.items():
        assert estimate(step(f"{line} {more}"), seen, known).seconds == pytest.approx(5 + pairs / 50)
    found = estimate(step(f"{line} --depth 10 --positives 64"), seen, known)
    assert known.rows["out"] == (350, 11_600)
    assert found.disk == pytest.approx(10 * 11_600 / 350)


def test_generators_learn_and_then_write_for_every_passage() -> None:
    line = "doc2query passages queries qrels m out --steps 200"
    seen = Seen(1.5, 0.05, 0, {"out": 10}, {"texts": 300, "speed": {"texts": 300.0}})
    assert estimate(step(line), seen, scales()).seconds == pytest.approx(5 + 0.5 + 10 + 100)
    assert estimate(step(f"{line} --checkpoint some"), seen, scales()).seconds == pytest.approx(5 + 0.5 + 100)
    assert estimate(step(line), seen, scales()).disk == 1_000


def test_one_trial_for_stages_that_differ_in_paths() -> None:
    one, other = (step(f"evaluate {name} q r --metrics m --values v --trec {name}.trec") for name in ("a", "b"))
    assert twin(one) == twin(other) is not None
    assert twin(one) != twin(replace(other, options=other.options | {"split": "dev"}))
    assert twin(step("tokens passages m out")) is None
    first = step(f"retriever {TABLES} --metrics x --batch 32")
    assert twin(first) != twin(step(f"retriever {TABLES} --metrics x --batch 32 --negatives run"))


def test_paths_stay_paths() -> None:
    assert step("bm25 passages queries out").options["passages"] == Path("passages")


@pytest.mark.parametrize(
    ("seconds", "words"), [(3, "3 s"), (600, "10 min"), (7_200, "2.0 h"), (864_000, "10 d"), (99.4, "99 s")]
)
def test_spans(seconds: float, words: str) -> None:
    assert span(seconds) == words


def test_a_recipes_own_generator_counts(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    spent = {1: 10.0, 3: 13.0}  # seconds by steps of the generator

    def timed(words: list[str]) -> tuple[float, int]:
        recipe = read_yaml(words[1])
        steps = int(words[words.index("--steps") + 1])
        return spent[recipe["generator"]["steps"]] + 0.5 * steps, 100

    monkeypatch.setattr(trial, "timed", timed)
    recipe = Path(__file__).parents[2] / "stages" / "recipes" / "simlm.yaml"
    one = step(f"pretrain {recipe} passages tokens start out --metrics x --batch 16")
    seen = trial.attempt(one, tmp_path, set())
    assert seen.step == pytest.approx(0.5)
    assert seen.start == pytest.approx(10 + 1_000 * 1.5 * 2)  # 1.5 s a step of the generator, with a batch of 8
