"""`hybrid bench --spec` and `--draft`: generation with guesses compared with generation without."""

import csv
import io
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import random_heads
from end_to_end.outcomes import Cli, failed, ok
from test_draft import Steps, eager

from hybrid.convert import convert
from hybrid.infer.answers.batch import generate as generation
from hybrid.infer.answers.guessing import foretelling
from hybrid.infer.answers.guessing import head_guesser as heads
from hybrid.infer.answers.guessing.head_guesser import HeadGuesser
from hybrid.infer.bench import guess_tests as measured

pytestmark = pytest.mark.exhaustive

__all__ = ["eager"]  # a fixture
SHORT = ("-n", 12, "-d", 32, "-r", 2, "-t", 1)


@pytest.fixture
def guessing(monkeypatch: pytest.MonkeyPatch, eager: None) -> None:
    """Guess always: this model is too small for guesses to pay."""
    monkeypatch.setattr("hybrid.infer.runner.StepCosts", Steps)


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> list[tuple[bool, bool, list[int]]]:
    """Every answer: whether it used guesses, whether a head followed it, and its prompt."""
    seen: list[tuple[bool, bool, list[int]]] = []

    def noted(seq: Any, prompt: Sequence[int], *args: Any, **kwargs: Any) -> generation.Generation:
        seen.append((kwargs["speculate"], seq.runner.follower is not None, list(prompt)))
        return generation.generate(seq, prompt, *args, **kwargs)

    monkeypatch.setattr(measured, "generate", noted)
    return seen


def test_a_text_that_repeats_itself(
    cli: Cli, files: dict[str, Path], tmp_path: Path, guessing: None, runs: list[tuple[bool, bool, list[int]]]
) -> None:
    text = tmp_path / "t.txt"
    text.write_text("One day a cat sat on a mat. " * 20)
    [row] = json.loads(ok(cli("bench", files["q8_0"], "--spec", "ngram", "-f", text, *SHORT, "--json")))
    assert (row["spec"], row["draft_filename"], row["n_depth"], row["n_gen"]) == ("ngram", None, 32, 12)
    assert row["n_guessed"] >= row["n_accepted"] > 0
    assert row["accepted_share"] == row["n_accepted"] / row["n_guessed"]
    assert row["n_passes"] + row["n_accepted"] == 2 * 12
    assert len(row["samples_plain_ts"]) == len(row["samples_guess_ts"]) == 2
    assert row["plain_ts"] > 0 and row["guess_ts"] > 0 and row["ratio"] > 0
    # one warm-up and two repetitions, alternating, each at another offset of the text
    assert [guesses for guesses, _, _ in runs] == [False, True, True, False, False, True]
    prompts = [prompt for _, _, prompt in runs]
    assert [len(prompt) for prompt in prompts] == [32] * 6
    assert prompts[::2] == prompts[1::2] and prompts[0] != prompts[2] != prompts[4]


def test_a_draft(cli: Cli, files: dict[str, Path], guessing: None) -> None:
    """The table and the CSV output, with the package's prose as text."""
    given = ("bench", files["bf16"], "--draft", files["q8_0"], *SHORT)
    lines = ok(cli(*given)).splitlines()
    assert len(lines) == 3
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in (lines[0], lines[2])]
    row = dict(zip(*cells, strict=True))
    assert list(row)[4:] == ["test", "guesses", "t/s without", "t/s with", "ratio", "taken"]
    assert row["test"] == "tg12 @ d32" and row["guesses"] == files["q8_0"].name
    share, _, of = row["taken"].partition("% (")
    accepted, guessed = (int(n) for n in of.rstrip(")").split(" of "))
    assert int(share) == round(100 * accepted / guessed) > 30
    [record] = csv.DictReader(io.StringIO(ok(cli(*given, "--spec", "ngram", "--no-warmup", "-o", "csv"))))
    assert record["draft_filename"] == str(files["q8_0"]) and record["spec"] == "ngram"
    assert int(record["n_accepted"]) > 0


def test_a_head(
    cli: Cli,
    tmp_path: Path,
    data_dir: Path,
    guessing: None,
    monkeypatch: pytest.MonkeyPatch,
    runs: list[tuple[bool, bool, list[int]]],
) -> None:
    """The head follows the model in runs with guesses only."""
    monkeypatch.setattr(heads, "may_pay", lambda *_: True)
    monkeypatch.setattr(foretelling, "best_rate", lambda chances, value, spent: (float(len(chances)), len(chances)))
    monkeypatch.setattr(HeadGuesser, "rests", False)
    path = tmp_path / "m.gguf"
    checkpoint = random_heads.write_right("qwen35-mtp", tmp_path / "m")
    convert(checkpoint, path, outtype="q8_0", tokenizer=data_dir / "checkpoints" / "mamba-bf16")
    [row] = json.loads(ok(cli("bench", path, "--spec", "mtp", *SHORT, "--json")))
    assert row["accepted_share"] > 0.8 and row["n_passes"] < 16
    assert [(guesses, reads) for guesses, reads, _ in runs] == [(g, g) for g in (False, True, True, False, False, True)]


def test_an_answer_that_differs(cli: Cli, files: dict[str, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    def wrong(*args: Any, **kwargs: Any) -> generation.Generation:
        answer = generation.generate(*args, **kwargs)
        answer.result.ids += [1] if kwargs["speculate"] else []
        return answer

    monkeypatch.setattr(measured, "generate", wrong)
    message = failed(cli("bench", files["q8_0"], "--spec", "ngram", *SHORT), code=1)
    assert "token 1 of the answer differs with guesses" in message


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ("m.gguf --spec ngram -p 64", "-p does not go with --spec and --draft: prompts are read without guesses"),
        ("m.gguf --spec ngram -pg 8,8", "-pg does not go with"),
        ("m.gguf --draft m.gguf -np 2", "-np does not go with --spec and --draft: one answer is measured"),
        ("m.gguf --spec mtp --profile", "--profile does not go with"),
        ("m.gguf --spec ngram --no-start", "--no-start does not go with"),
        ("m.gguf --spec ngram --no-state", "--no-state does not go with"),
        ("--shape mamba-130m --spec ngram", "--shape does not go with --spec and --draft: nobody can guess"),
        ("m.gguf --spec ngram --type Q4_0", "--type does not go with"),
        ("m.gguf -f t.txt", "-f is the text that guesses go on from. Add --spec or --draft"),
        ("m.gguf --spec none -f t.txt", "-f is the text that guesses go on from"),
        ("m.gguf --spec ngram -d 0", "-d 0: 0 is less than 1"),
        ("m.gguf --spec ngram -n 0", "-n 0: 0 is less than 1"),
        ("m.gguf --spec ngram -r 0", "repetitions = 0"),
        ("m.gguf --spec ngram -f no.txt", "no.txt cannot be read"),
        ("m.gguf --spec ngram -f t.txt", "has 3 tokens, "),
        ("m.gguf --spec mtp --draft m.gguf", "--spec mtp and --draft: either"),
        ("m.gguf --draft no.gguf", "no such file or folder"),
        ("m.gguf --spec mtp", "has no head that guesses tokens ahead"),
        ("m.gguf --draft m.gguf --cluster local:1 --stages 1", "Leave out --stages, or use --spec ngram"),
        ("m.gguf --spec guess", "guess"),
    ],
)
def test_what_is_refused(
    given: str, says: str, cli: Cli, files: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("m.gguf").symlink_to(files["q8_0"])
    Path("t.txt").write_text("A cat")
    assert says in failed(cli("bench", *given.split()), code=2)
