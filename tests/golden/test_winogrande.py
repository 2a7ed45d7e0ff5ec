"""Winogrande: llama-perplexity's scores of the same tasks, and scores of each text alone by models in float64."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from golden.models import Golden
from golden.test_reference_models import f32
from reference.families import Reference

from hybrid.cli.main import run
from hybrid.convert.checkpoint import Checkpoint
from hybrid.infer import LoadedModel
from hybrid.infer.evaluate.choices import ScoredTask, some_of
from hybrid.infer.evaluate.windows import log_likelihood
from hybrid.infer.evaluate.winogrande import (
    LEAST_AFTER,
    WinograndeResult,
    WinograndeTask,
    candidates,
    read_winogrande,
    winogrande,
)
from hybrid.infer.model import measured
from hybrid.quant.ggml.errors import Remedy, UsageError

SCORES = Path(__file__).with_name("scores")
EXPECTED: dict[str, Any] = json.loads((SCORES / "expected.json").read_text())
WHOLE = {"jamba-11m": 8, "llama-unigram-bin": 7}  # tasks in which the choice is scored, which depends on the tokenizer
PRINTED = 2e-5  # nats: for six printed decimals, and two implementations in f32


@pytest.fixture(scope="module")
def tasks() -> list[WinograndeTask]:
    return read_winogrande((SCORES / "winogrande.csv").read_text(), "winogrande.csv")


def as_llama_perplexity(model: LoadedModel, task: WinograndeTask, scored: ScoredTask) -> list[float]:
    """If the choice is also scored, llama-perplexity predicts the first token of choice 2 from the last logits of the
    text with choice 1.

    Both sums are means of n tokens, of which the first is replaced.
    """
    parts, follows_only = candidates(model, task)
    means = scored.means.tolist()
    if not follows_only:
        second = parts[1]
        first_id = second.ids[second.scored.start]
        with measured(model, 2) as (one, other):
            with_first = one.logits_of(list(parts[0].ids))[-1:]
            alone = other.logits_of(list(second.ids[: second.scored.start]))[-1:]
        change = log_likelihood(with_first, [first_id]) - log_likelihood(alone, [first_id])
        means[1] += float(change[0]) / len(second.scored)
    return means


@pytest.mark.parametrize("name", ["llama-unigram-bin", pytest.param("jamba-11m", marks=pytest.mark.slow)])
def test_scores_are_llama_perplexitys(name: str, converted: Callable[..., Path], tasks: list[WinograndeTask]) -> None:
    got: list[tuple[ScoredTask, int]] = []

    def keep(one: ScoredTask, answer: int, so_far: WinograndeResult) -> None:
        got.append((one, answer))
        assert round(so_far.accuracy * so_far.n_tasks) == sum(
            a == t.gold for (_, a), t in zip(got, tasks, strict=False)
        )

    with LoadedModel.load(converted(name), n_ctx=128, n_seq_max=32, precision="exact") as model:
        result = winogrande(model, tasks, keep)
        theirs = EXPECTED["winogrande"][name]
        assert len(theirs) == len(got) == result.n_tasks == 48 and result.n_whole == WHOLE[name]
        errors, correct = [], 0
        for task, (one, answer), row in zip(tasks, got, theirs, strict=True):
            number, accuracy, first, second, their_answer, gold = row
            means = as_llama_perplexity(model, task, one)
            errors.append(np.abs(np.array(means) - (first, second)).max())
            assert gold == task.gold + 1 and their_answer == (1 if means[0] > means[1] else 2)
            correct += their_answer == gold
            assert accuracy == pytest.approx(100 * correct / number, abs=1e-4)
            if candidates(model, task)[1]:
                assert their_answer == answer + 1
        print(f"{name}: {max(errors):.1e} nats from llama-perplexity's")
        assert max(errors) < PRINTED
        drawn = some_of(tasks, 5)
        assert [t.gold + 1 for t in drawn] == [int(row[-1]) for row in EXPECTED["winogrande_drawn"][name]]
        of_drawn: list[ScoredTask] = []
        winogrande(model, drawn, lambda one, *_: of_drawn.append(one))
        for one, row in zip(of_drawn, EXPECTED["winogrande_drawn"][name], strict=True):
            assert one.means[0] == pytest.approx(row[2], abs=PRINTED), "the same tasks are drawn"
        assert model.n_free == 32


@pytest.mark.parametrize("name", ["mamba-bf16", pytest.param("falcon-mamba", marks=pytest.mark.slow)])
def test_recurrent_models_score_as_models_in_float64_do(
    name: str, golden: Callable[[str], Golden], converted: Callable[..., Path], tasks: list[WinograndeTask]
) -> None:
    """Each text alone, token by token, from the checkpoint itself."""
    source = golden(name).source
    tensors = {n: f32(t) for n, t in Checkpoint(source).tensors.items()}
    reference = Reference(json.loads((source / "config.json").read_text()), tensors)
    some = tasks[:6]
    got: list[ScoredTask] = []
    with LoadedModel.load(converted(name), n_ctx=128, n_seq_max=5, precision="exact") as model:
        result = winogrande(model, some, lambda one, *_: got.append(one))
        twins = []
        for task in some:
            texts = [model.tokenizer.encode(task.before + c + task.after) for c in task.choices]
            alike = next(i for i, (a, b) in enumerate(zip(*texts, strict=False)) if a != b)
            parted = all(len(ids) - alike >= LEAST_AFTER for ids in texts)
            ends = [len(model.tokenizer.encode(task.before + c)) if parted else alike for c in task.choices]
            for ids, begin in zip(texts, ends, strict=True):
                end = len(ids) - (len(ids) - begin > 1)
                twins.append(log_likelihood(reference.logits(ids)[begin - 1 : end - 1], ids[begin:end]).mean())
    expected = np.reshape(twins, (-1, 2))
    np.testing.assert_allclose([one.means for one in got], expected, rtol=2e-5)
    right = sum((0 if a > b else 1) == task.gold for task, (a, b) in zip(some, expected, strict=True))
    assert result.accuracy == right / 6 and result.n_whole == 1


def test_the_command(converted: Callable[..., Path], capsys: pytest.CaptureFixture[str]) -> None:
    command = ["perplexity", str(converted("mamba-bf16")), "-f", str(SCORES / "winogrande.csv"), "--winogrande"]
    assert run([*command, "--winogrande-tasks", "7", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["n_tasks"] == 7 and 0 <= report["accuracy"] <= 1 and report["stderr"] > 0
    assert report["n_processed"] < 0.8 * report["n_tokens"], "what both texts begin with is computed once"
    assert run([*command, "--winogrande-tasks", "7"]) == 0
    out = capsys.readouterr().out.splitlines()
    assert len(out) == 9 and all(re.fullmatch(r"\d\t[\d.]+\t *-[\d.]+ +-[\d.]+  [12]  [12]", line) for line in out[:7])
    share, error = 100 * report["accuracy"], 100 * report["stderr"]
    assert out[-1] == f"Final Winogrande score(7 tasks): {share:.4f} +/- {error:.4f}"
    assert run([*command, "--winogrande-tasks", "1", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["stderr"] is None


@pytest.mark.parametrize(
    ("more", "says"),
    [
        (["--stride", "4"], "--winogrande scores tasks: leave out --stride"),
        (["--hellaswag"], "--hellaswag and --winogrande read different files"),
    ],
)
def test_options_that_do_not_go_together(more: list[str], says: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["perplexity", "no-model", "-f", "no-file", "--winogrande", *more]) == 2
    assert says in capsys.readouterr().err
    assert run(["perplexity", "no-model", "-f", "no-file", "--winogrande-tasks", "3"]) == 2
    assert "--winogrande-tasks belongs to --winogrande" in capsys.readouterr().err


GOOD = "1,Ann met Bo because _ was late.,Ann,Bo,2"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("\n\n", "has no tasks, expected lines of: number,sentence"),
        (GOOD + "\n1,a _ b,c,d", "line 2 has 4 fields, expected 5"),
        ('1,"a _ b,c,d,1', "line 1 has 2 fields"),
        ("1,a b,c,d,1", "line 1: the sentence has no gap. Put _ where the choice goes"),
        ("1,a _ b,c, ,1", "line 1: a choice is empty"),
        ("1,a _ b,c,d,3", "line 1: '3' is not the number of a choice, 1 or 2"),
        ("1,a _ b,c,d,1,2", "line 1: '1,2' is not"),
        ("1,a _ b,c,d," + "x" * 99, r"line 1: 'x{20}\.\.\.x{20}' is not"),
        ("qID,sentence,option1,option2,answer", "line 1: the sentence has no gap"),
    ],
)
def test_damaged_files(text: str, says: str) -> None:
    with pytest.raises(UsageError, match=says) as caught:
        read_winogrande(text, "tasks.csv")
    assert str(caught.value).startswith("tasks.csv")


def test_lines() -> None:
    task = read_winogrande('\n7,"A, B and _, ""C"".",x y,z,1 \r\n\n', "f")[0]
    assert task == WinograndeTask("A, B and ", ', ""C"".', ("x y", "z"), 0)
    assert read_winogrande(GOOD, "f")[0].gold == 1, "the last line needs no newline"


def test_texts_that_do_not_fit(converted: Callable[..., Path]) -> None:
    with LoadedModel.load(converted("mamba-bf16"), n_ctx=16, n_seq_max=2) as model:
        with pytest.raises(UsageError, match=r"tokens, the context 16\.$") as refused:
            winogrande(model, [WinograndeTask("a " * 99, " b.", ("c", "d"), 0)])
        assert refused.value.remedy is Remedy.LARGER_CONTEXT
        with pytest.raises(UsageError, match="needs tasks"):
            winogrande(model, [])
        with pytest.raises(UsageError, match="at least two tokens"):
            winogrande(model, [WinograndeTask("", "", ("c", "d"), 0)])
        assert model.n_free == 2
