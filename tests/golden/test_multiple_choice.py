"""Multiple choice: llama-perplexity's right answers to the same questions, scores by models in float64, invalid
files."""

import json
import re
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from golden.models import Golden
from golden.scores import make
from golden.test_reference_models import f32
from reference.families import Reference

from hybrid.cli.main import run
from hybrid.convert.checkpoint import Checkpoint
from hybrid.infer import LoadedModel
from hybrid.infer.evaluate.choices import after_common_prefix, score, some_of
from hybrid.infer.evaluate.multiple_choice import (
    MultipleChoiceResult,
    Question,
    multiple_choice,
    read_multiple_choice,
)
from hybrid.infer.evaluate.windows import log_likelihood
from hybrid.quant.ggml.errors import FormatError, Remedy, UsageError

pytestmark = pytest.mark.exhaustive

SCORES = Path(__file__).with_name("scores")
FILE = SCORES / "multiple_choice.bin"
EXPECTED: dict[str, Any] = json.loads((SCORES / "expected.json").read_text())


@pytest.fixture(scope="module")
def tasks() -> list[Question]:
    return read_multiple_choice(FILE.read_bytes(), FILE.name)


@pytest.mark.parametrize("name", ["llama-unigram-bin", pytest.param("jamba-11m", marks=pytest.mark.slow)])
def test_answers_are_llama_perplexitys(
    name: str, converted: Callable[..., Path], tasks: list[Question], capsys: pytest.CaptureFixture[str]
) -> None:
    """After every task: the share of right answers, for all tasks and for a sample of them."""
    got: list[MultipleChoiceResult] = []
    with LoadedModel.load(converted(name), n_ctx=128, n_seq_max=9, precision="exact") as model:
        multiple_choice(model, tasks, got.append)
        drawn: list[MultipleChoiceResult] = []
        multiple_choice(model, some_of(tasks, make.N_DRAWN), drawn.append)
        assert model.n_free == 9
    for results, expected in ((got, "multiple_choice"), (drawn, "multiple_choice_drawn")):
        theirs = EXPECTED[expected][name]
        np.testing.assert_allclose([[r.n_tasks, 100 * r.acc_norm] for r in results], theirs, rtol=1e-7)
    assert run(["perplexity", str(converted(name)), "-f", str(FILE), "--multiple-choice", "--exact"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [re.split(r"\s+", line) for line in lines[1:41]] == [
        [f"{n:.0f}", f"{share:.8f}"] for n, share in EXPECTED["multiple_choice"][name]
    ]
    assert lines[0] == "task\tacc_norm" and lines[-2:] == EXPECTED["multiple_choice_final"][name]


@pytest.mark.parametrize("name", ["mamba-bf16", pytest.param("falcon-mamba", marks=pytest.mark.slow)])
def test_recurrent_models_score_as_models_in_float64_do(
    name: str, golden: Callable[[str], Golden], converted: Callable[..., Path], tasks: list[Question]
) -> None:
    """Each text alone, from the checkpoint itself; with three sequences, so that most questions are processed in
    parts."""
    source = golden(name).source
    tensors = {n: f32(t) for n, t in Checkpoint(source).tensors.items()}
    reference = Reference(json.loads((source / "config.json").read_text()), tensors)
    some = tasks[:4]
    with LoadedModel.load(converted(name), n_ctx=128, n_seq_max=3, precision="exact") as model:
        texts = [[model.tokenizer.encode(f"{t.text} {a}") for a in t.answers] for t in some]
        got = [one.means for one in score(model, map(after_common_prefix, texts))]
        result = multiple_choice(model, some)
    right = 0
    for task, encoded, means in zip(some, texts, got, strict=True):
        alike = next(i for i in range(99) if len({ids[i] for ids in encoded}) > 1)
        twins = [log_likelihood(reference.logits(ids)[alike - 1 : -1], ids[alike:]).mean() for ids in encoded]
        np.testing.assert_allclose(means, twins, rtol=2e-5)
        right += task.right[int(np.argmax(twins))]
    assert result.acc_norm == right / 4 and result.chance == 4 / sum(len(t.answers) for t in some)


def test_the_file_is_what_was_written(tasks: list[Question]) -> None:
    written = make.questions()
    assert FILE.read_bytes() == make.multiple_choice(written), "what the golden numbers were made with"
    assert [(t.text, list(t.answers), t.right.index(True)) for t in tasks] == written
    assert all(sum(t.right) == 1 for t in tasks) and {len(t.answers) for t in tasks} == set(range(2, 8))


def test_json(converted: Callable[..., Path], capsys: pytest.CaptureFixture[str]) -> None:
    command = ["perplexity", str(converted("mamba-bf16")), "-f", str(FILE), "--multiple-choice", "--json"]
    assert run([*command, "--multiple-choice-tasks", "5"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert set(report) == {"acc_norm", "stderr", "chance", "n_tasks", "n_tokens", "n_processed"}
    assert report["n_tasks"] == 5 and report["n_processed"] < report["n_tokens"]


ONE = make.multiple_choice([("Is it", ["so", "not"], 1)])
EMPTY_SET = make.answers_bytes([], [])


def one_task(body: bytes) -> bytes:
    return struct.pack("<2I", 1, 8) + body


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"", "4 bytes of the number of tasks expected at byte 0, the file has 0"),
        (struct.pack("<I", 0), "has no tasks"),
        (struct.pack("<I", 2**32 - 1) + ONE[4:], r"4294967295 tasks do not fit into \d+ bytes"),
        (struct.pack("<2I", 1, 9) + ONE[8:], "task 1 begins at byte 8, the table says 9"),
        (ONE + b"\0", "has 1 bytes after its last task"),
        (ONE[:-1], r"task 1: 12 bytes of the labels expected at byte 70, the file has 81\. Copy it again"),
        (ONE[:-13], "task 1: 7 bytes of an answer expected"),
        (one_task(struct.pack("<I", 2**32 - 1) + bytes(99)), "task 1: 4294967295 bytes of the question exp"),
        (one_task(make.text_bytes("q") + struct.pack("<I", 101) + bytes(99)), "101 answers, at most 100"),
        (one_task(make.text_bytes("q") + struct.pack("<2I", 1, 2**31) + bytes(99)), "2147483648 bytes of an answer"),
        (one_task(struct.pack("<I", 1) + b"\xff" + bytes(99)), "the question before byte 13 is not UTF-8"),
        (make.multiple_choice([(" ", ["a"], 0)]), "a question and answers are needed"),
        (make.multiple_choice([("q", ["a", ""], 0)]), "a question and answers are needed"),
        (one_task(make.text_bytes("long enough") + 2 * EMPTY_SET), "a question and answers are needed"),
        (one_task(make.text_bytes("q") + make.answers_bytes(["a"], [2]) + EMPTY_SET), r"labels \[2\]: expected 1"),
        (one_task(make.text_bytes("q") + make.answers_bytes(["a"], [0]) + EMPTY_SET), r"labels \[0\]: expected 1"),
        (b"Is this a text? It is, and no file of tasks.", "tasks do not fit"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_damaged_files(data: bytes, says: str) -> None:
    with pytest.raises(FormatError, match=says) as caught:
        read_multiple_choice(data, "tasks.bin")
    assert str(caught.value).startswith("tasks.bin")


def test_every_cut_and_every_changed_byte_is_read_or_refused() -> None:
    """The result is tasks or a FormatError, and the memory stays within the file's size."""
    data = make.multiple_choice(make.questions(2))
    for end in range(len(data)):
        with pytest.raises(FormatError):
            read_multiple_choice(data[:end], "f")
    n_refused = 0
    for at in range(len(data)):
        changed = bytes([*data[:at], data[at] ^ 0x81, *data[at + 1 :]])
        try:
            read_multiple_choice(changed, "f")
        except FormatError:
            n_refused += 1
    assert n_refused > len(data) / 2  # changed bytes of ASCII text and the upper bytes of labels


def test_a_text_that_does_not_fit(converted: Callable[..., Path]) -> None:
    with LoadedModel.load(converted("mamba-bf16"), n_ctx=16, n_seq_max=2) as model:
        with pytest.raises(UsageError, match=r"tokens, the context 16\.$") as refused:
            multiple_choice(model, [Question("a " * 99, ("b", "c"), (True, False))])
        assert refused.value.remedy is Remedy.LARGER_CONTEXT and model.n_free == 2
