"""Timing with and without guesses: which runs are timed, the source of prompts, the results."""

import csv
import io

import pytest

from hybrid.infer.bench.benchmark import BenchOptions, BenchTest, Setting
from hybrid.infer.bench.guess_tests import GuessRow, check_same, guess_tests, prompts
from hybrid.infer.bench.tables import guess_csv, guess_markdown, guess_records
from hybrid.quant.ggml.errors import HybridError, UsageError

SETTING = Setting("/m/j.gguf", "jamba Q8_0", 3_367_408_352, 3_029_337_472, 2, 512, "fast", "f16")
TEST = BenchTest(0, 12, 64)
ROW = GuessRow(SETTING, TEST, "ngram", None, (1.0, 2.0, 6.0), (0.5, 2.0, 2.0), 20, 15, 11, "2026-01-02T03:04:05Z")
DRAFT = GuessRow(SETTING, TEST, "none", "/m/small.gguf", (1.0,), (1.2,), 12, 0, 0, "2026-01-02T03:04:06Z")


def test_rates_and_their_ratio() -> None:
    assert ROW.plain_rates == [12, 6, 2] and ROW.rates == [24, 6, 6]
    assert ROW.ratio == 2.0, "the middle one of 2, 1 and 3: not of the two medians"
    assert ROW.taken == 11 / 15
    assert DRAFT.taken is None, "nothing was guessed"


def test_table() -> None:
    assert guess_markdown([ROW, DRAFT]) == (
        "| model      |     size | params | threads |       test |    guesses |  t/s without |     t/s with "
        "| ratio |          taken |\n"
        "| ---------- | -------: | -----: | ------: | ---------: | ---------: | -----------: | -----------: "
        "| ----: | -------------: |\n"
        "| jamba Q8_0 | 3.14 GiB | 3.03 B |       2 | tg12 @ d64 |      ngram |  6.00 ± 5.03 | 6.00 ± 10.39 "
        "|  2.00 | 73% (11 of 15) |\n"
        "| jamba Q8_0 | 3.14 GiB | 3.03 B |       2 | tg12 @ d64 | small.gguf | 12.00 ± 0.00 | 10.00 ± 0.00 "
        "|  0.83 |              - |\n"
    )
    both = GuessRow(SETTING, TEST, "ngram", "/m/small.gguf", (1.0,), (1.0,), 12, 0, 0, "")
    assert "| ngram + small.gguf |" in guess_markdown([both])


def test_records() -> None:
    first, second = guess_records([ROW, DRAFT])
    assert (first["n_prompt"], first["n_gen"], first["n_depth"], first["model_type"]) == (0, 12, 64, "jamba Q8_0")
    assert (first["plain_ts"], first["guess_ts"], first["ratio"]) == (6, 6, 2)
    assert (first["n_guessed"], first["n_accepted"], first["n_passes"]) == (15, 11, 20)
    assert first["samples_plain_ts"] == [12, 6, 2] and first["samples_guess_ts"] == [24, 6, 6]
    assert (second["spec"], second["draft_filename"], second["accepted_share"]) == ("none", "/m/small.gguf", None)
    rows = list(csv.DictReader(io.StringIO(guess_csv([ROW, DRAFT]))))
    assert [row["ratio"] for row in rows] == ["2.0", str(1 / 1.2)]
    assert not any(name.startswith("samples") for name in rows[0])


def test_every_repetition_begins_elsewhere() -> None:
    found = list(prompts(range(100, 200), 11, 5, [1]))
    assert [p[:2] for p in found] == [[1, 100], [1, 118], [1, 136], [1, 154], [1, 172]]
    assert all(p[1:] == list(range(p[1], p[1] + 10)) for p in found)
    assert list(prompts(range(8), 8, 2)) == [list(range(8))] * 2, "there is one place in such a text"
    with pytest.raises(UsageError, match=r"has 8 tokens, 9 are needed before .*\. Give a longer text"):
        list(prompts(range(8), 9, 1))


def test_an_answer_that_differs_is_an_error() -> None:
    check_same([1, 2, 3], [1, 2, 3], "m.gguf")
    with pytest.raises(HybridError, match=r"m\.gguf: token 3 of the answer differs with guesses"):
        check_same([1, 2, 3], [1, 2, 4], "m.gguf")
    with pytest.raises(HybridError, match="token 3 "):
        check_same([1, 2], [1, 2, 4], "m.gguf")


def test_which_tests() -> None:
    tests = guess_tests(BenchOptions(prompts=(512,), gens=(8, 16), depths=(64, 128), pairs=((1, 1),)))
    assert [test.name for test in tests] == ["tg8 @ d64", "tg16 @ d64", "tg8 @ d128", "tg16 @ d128"]
    with pytest.raises(UsageError, match="at least 1 repetition"):
        guess_tests(BenchOptions(repetitions=0))
