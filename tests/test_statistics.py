"""Keyword and salience weights of whole files."""

import json
import math
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from stages import statistics
from stages.artifacts.refusal import Refusal
from stages.artifacts.tables import Tokens, Weights
from stages.statistics import keywords, salience

ROOT = Path(__file__).parents[1]
BOOLQ = ROOT.parent / "shared" / "data" / "boolq-wiki" / "corpus.jsonl"

# twenty words: a rose is a rose is a rose / the rose is red / the sky is blue / a sky, sky, red
A, ROSE, IS, THE, RED, SKY, BLUE = range(7)
TWENTY = [[A, ROSE, IS, A, ROSE, IS, A, ROSE], [THE, ROSE, IS, RED], [THE, SKY, IS, BLUE], [A, SKY, SKY, RED]]


def write_tokens(path: Path, passages: list[list[int]]) -> Path:
    Tokens.write(
        path,
        {
            "passage_id": [f"p{i}" for i in range(len(passages))],
            "pieces": passages,
            "words": passages,
            "word_of_piece": [list(range(len(passage))) for passage in passages],
        },
    )
    return path


@pytest.fixture
def twenty(tmp_path: Path) -> Path:
    return write_tokens(tmp_path / "tokens.parquet", TWENTY)


def weights(path: Path) -> list[list[float]]:
    return Weights.read(path).column("weight").to_pylist()


def test_tf_idf_by_hand(twenty: Path, tmp_path: Path) -> None:
    keywords(twenty, tmp_path / "w.parquet")
    found = weights(tmp_path / "w.parquet")
    # a: three times in passage 0, in 2 of 4 passages; rose: three times, in 2; is: twice, in 3; red: once, in 2
    a, rose, is_ = 3 * math.log(5 / 2), 3 * math.log(5 / 2), 2 * math.log(5 / 3)
    assert found[0] == pytest.approx([a, rose, is_, a, rose, is_, a, rose])
    assert found[2] == pytest.approx([math.log(5 / 2), math.log(5 / 2), math.log(5 / 3), math.log(5 / 1)])
    assert found[3] == pytest.approx([math.log(5 / 2), 2 * math.log(5 / 2), 2 * math.log(5 / 2), math.log(5 / 2)])


def test_inverse_frequency_by_hand(twenty: Path, tmp_path: Path) -> None:
    keywords(twenty, tmp_path / "w.parquet", weight="inverse-frequency")
    times = {A: 4, ROSE: 4, IS: 4, THE: 2, RED: 2, SKY: 3, BLUE: 1}
    assert weights(tmp_path / "w.parquet") == [pytest.approx([1 / times[w] for w in words]) for words in TWENTY]


def test_salience_by_hand(twenty: Path, tmp_path: Path) -> None:
    salience(twenty, tmp_path / "w.parquet", window=3)
    found = weights(tmp_path / "w.parquet")
    # 20 words, 16 bigrams, 12 trigrams; "the sky is blue": every n-gram of it occurs once
    the, sky, is_, blue = 2 / 20, 3 / 20, 4 / 20, 1 / 20
    the_sky, sky_is, is_blue = (math.log(1 / 16 / (x * y)) for x, y in ((the, sky), (sky, is_), (is_, blue)))
    the_sky_is, sky_is_blue = math.log(1 / 12 / (the * sky * is_)), math.log(1 / 12 / (sky * is_ * blue))
    expected = [
        (the_sky + the_sky_is) / 2,
        the_sky / 2 + (sky_is + sky_is_blue) / 2,
        (sky_is + the_sky_is) / 2 + is_blue / 2,
        (is_blue + sky_is_blue) / 2,
    ]
    assert found[2] == pytest.approx(expected, rel=1e-6)
    # "a rose" occurs 3 times, "a rose is" twice
    a_rose, a_rose_is = math.log(3 / 16 / 0.2**2), math.log(2 / 12 / 0.2**3)
    assert found[0][0] == pytest.approx((a_rose + a_rose_is) / 2, rel=1e-6)


def test_renormalised_edges_by_hand(twenty: Path, tmp_path: Path) -> None:
    salience(twenty, tmp_path / "drop.parquet", window=3)
    salience(twenty, tmp_path / "w.parquet", window=3, edges="renormalise")
    drop, found = weights(tmp_path / "drop.parquet"), weights(tmp_path / "w.parquet")
    # terms present in a passage of four words, window 3: 2, 3, 3, 2 of 4
    factors = [4 / 2, 4 / 3, 4 / 3, 4 / 2]
    assert found[1] == pytest.approx([d * f for d, f in zip(drop[1], factors, strict=True)], rel=1e-6)
    assert found[0][2:6] == drop[0][2:6]  # the middle of a longer passage misses nothing


def oracle(passages: list[list[int]], window: int) -> list[list[float]]:
    """Equation 8 of CDMAE, literally."""
    counts = {
        n: Counter(tuple(p[i : i + n]) for p in passages for i in range(len(p) - n + 1)) for n in range(1, window + 1)
    }
    totals = {n: sum(counts[n].values()) for n in counts}

    def pmi(gram: list[int]) -> float:
        alone = math.prod(counts[1][(word,)] / totals[1] for word in gram)
        return math.log(counts[len(gram)][tuple(gram)] / totals[len(gram)] / alone)

    def ami(p: list[int], i: int) -> float:
        before = [pmi(p[i - j : i + 1]) for j in range(1, window) if i - j >= 0]
        behind = [pmi(p[i : i + j + 1]) for j in range(1, window) if i + j < len(p)]
        return sum(before) / (window - 1) + sum(behind) / (window - 1)

    return [[ami(p, i) for i in range(len(p))] for p in passages]


def real_passages(count: int) -> list[list[int]]:
    if not BOOLQ.exists():
        pytest.skip(f"{BOOLQ} is absent")
    ids: dict[str, int] = {}
    with BOOLQ.open(encoding="utf-8") as lines:
        texts = [json.loads(line)["text"].lower().split() for line, _ in zip(lines, range(count), strict=False)]
    return [[ids.setdefault(word, len(ids)) for word in text] for text in texts]


@pytest.mark.parametrize("window", [2, 4])
def test_salience_of_real_text_is_the_oracle(window: int, tmp_path: Path) -> None:
    passages = real_passages(2000)
    salience(write_tokens(tmp_path / "t.parquet", passages), tmp_path / "w.parquet", window=window)
    for found, expected in zip(weights(tmp_path / "w.parquet"), oracle(passages, window), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)


def test_tf_idf_of_real_text_is_the_oracle(tmp_path: Path) -> None:
    passages = real_passages(2000)
    keywords(write_tokens(tmp_path / "t.parquet", passages), tmp_path / "w.parquet")
    df = Counter(word for passage in passages for word in set(passage))
    for found, passage in zip(weights(tmp_path / "w.parquet"), passages, strict=True):
        tf = Counter(passage)
        np.testing.assert_allclose(found, [tf[w] * math.log(2001 / df[w]) for w in passage], rtol=1e-6)


@pytest.mark.parametrize("command", [keywords, salience])
def test_weights_align_with_words_through_passages_without_any(command: Any, tmp_path: Path) -> None:
    passages = [[], [0, 1, 2], [], [3], [0, 1], []]
    command(write_tokens(tmp_path / "t.parquet", passages), tmp_path / "w.parquet")
    table = Weights.read(tmp_path / "w.parquet")
    assert table.column("passage_id").to_pylist() == [f"p{i}" for i in range(6)]
    assert [len(row) for row in table.column("weight").to_pylist()] == [len(p) for p in passages]


def test_keyword_weights_are_above_zero_for_a_word_of_every_passage(tmp_path: Path) -> None:
    keywords(write_tokens(tmp_path / "t.parquet", [[0, 1], [0, 2], [0]]), tmp_path / "w.parquet")
    assert all(weight > 0 for row in weights(tmp_path / "w.parquet") for weight in row)


@pytest.mark.parametrize("command", [keywords, salience])
def test_same_bytes_however_it_is_cut(command: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(1)
    passages = [rng.zipf(1.4, size=rng.integers(0, 60)).clip(max=500).tolist() for _ in range(300)]
    tokens = write_tokens(tmp_path / "t.parquet", passages)
    command(tokens, tmp_path / "whole.parquet")
    monkeypatch.setattr("stages.counting.blocks.WORDS", 700)
    monkeypatch.setattr("stages.counting.ngrams.CHUNK", 100)
    monkeypatch.setattr(statistics, "partitions_within", lambda words, memory: 32)
    command(tokens, tmp_path / "cut.parquet")
    assert (tmp_path / "whole.parquet").read_bytes() == (tmp_path / "cut.parquet").read_bytes()


@pytest.mark.parametrize("command", [keywords, salience])
def test_bad_tokens_are_refused_and_leave_nothing(command: Any, tmp_path: Path) -> None:
    out = tmp_path / "w.parquet"
    with pytest.raises(Refusal, match=r"absent\.parquet: no such file$"):
        command(tmp_path / "absent.parquet", out)
    with pytest.raises(Refusal, match=r"t\.parquet: no rows$"):
        command(write_tokens(tmp_path / "t.parquet", []), out)
    with pytest.raises(Refusal, match=r"n\.parquet: row 2: words holds -5, a word id is not negative$"):
        command(write_tokens(tmp_path / "n.parquet", [[1], [], [2, -5], [3]]), out)
    Weights.write(tmp_path / "x.parquet", {"passage_id": ["a"], "weight": [[1.0]]})
    with pytest.raises(Refusal, match="not a Tokens table: column pieces is missing"):
        command(tmp_path / "x.parquet", out)
    assert not out.exists()
    assert not [path for path in tmp_path.iterdir() if "partial" in path.name]


def test_too_little_memory_is_refused(twenty: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(statistics, "partitions_within", lambda words, memory: 1 << 17)
    with pytest.raises(Refusal, match=r"^--memory: 2\.0 GiB is too little for 20 words$"):
        salience(twenty, tmp_path / "w.parquet")


def peak_of_salience(words: np.ndarray, folder: Path) -> float:
    """MiB that a process of its own needs for ``words`` in passages of twenty."""
    offsets = pa.array(np.arange(0, len(words) + 1, 20), pa.int32())
    lists = pa.ListArray.from_arrays(offsets, words.astype(np.int32))
    places = pa.ListArray.from_arrays(offsets, np.tile(np.arange(20, dtype=np.int16), len(lists)))
    ids = pa.array([str(i) for i in range(len(lists))])
    Tokens.write(folder / "t.parquet", {"passage_id": ids, "pieces": lists, "words": lists, "word_of_piece": places})
    run = (
        "import sys; from pathlib import Path; from stages.statistics import salience;"
        "salience(Path(sys.argv[1]), Path(sys.argv[2]), memory=0.5);"
        "print(Path('/proc/self/status').read_text())"
    )
    command = [sys.executable, "-c", run, str(folder / "t.parquet"), str(folder / "w.parquet")]
    status = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    # not getrusage's ru_maxrss: that starts at what the parent held when it forked
    return int(status.split("VmHWM:")[1].split()[0]) / 2**10


def test_memory_stays_under_the_parameter_and_does_not_grow(tmp_path: Path) -> None:
    """Text whose n-grams mostly repeat, and one word over and over, which no partition can divide."""
    rng = np.random.default_rng(0)
    sentences = rng.zipf(1.2, size=(60_000, 20)).clip(max=50_000)
    small = peak_of_salience(sentences[:30_000].ravel(), tmp_path)
    large = peak_of_salience(sentences[rng.integers(0, len(sentences), size=250_000)].ravel(), tmp_path)
    alike = peak_of_salience(np.zeros(1_000_000), tmp_path)
    assert max(small, large, alike) < 512
    assert max(large, alike) - small < 96  # the keys of five million words alone are 38 MiB a copy
