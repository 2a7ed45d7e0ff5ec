"""HellaSwag: llama-perplexity's accuracy on the same tasks, and the scores of each text alone."""

import json
import os
import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from hybrid.cli.main import run
from hybrid.infer import LoadedModel
from hybrid.infer.evaluate.choices import after_common_prefix, common_prefix, score
from hybrid.infer.evaluate.hellaswag import LINES, HellaSwagTask, hellaswag, read_tasks, some_of
from hybrid.quant.ggml.errors import Remedy, UsageError

pytestmark = pytest.mark.exhaustive

PEER = os.environ.get("PEER", "")
# Right answers of 40, with F32 files: llama-perplexity --hellaswag (commit 0c1e57098) has the same for the Jamba; for
# models as quick as the Mamba it loses its last lines. The Mamba is checked by the scores of each text alone, below.
EXPECTED = {"jamba-11m": 16, "mamba-bf16": 12}


@pytest.fixture(scope="module")
def tasks(prose: Path) -> str:
    """Sentences cut in the middle, each with its own second half among three others'."""
    rng = np.random.default_rng(8)
    words = [s.split() for s in re.split(r"(?<=[.?])\s+", prose.read_text()) if len(s.split()) > 12]
    lines = []
    for i in rng.permutation(len(words))[:40]:
        half, others = len(words[i]) // 2, rng.permutation([j for j in range(len(words)) if j != i])[:3]
        endings = [" ".join(words[j][len(words[j]) // 2 :]) for j in others]
        gold = int(rng.integers(4))
        endings.insert(gold, " ".join(words[i][half:]))
        lines += ["Reading: " + " ".join(words[i][:half]), str(gold), *endings]
    return "\n".join(lines) + "\n"


@pytest.mark.parametrize("name", ["mamba-bf16", pytest.param("jamba-11m", marks=pytest.mark.slow)])
def test_as_llama_perplexity_counts(
    name: str, converted: Callable[..., Path], tasks: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "tasks.txt"
    file.write_text(tasks)
    command = ["perplexity", str(converted(name)), "-f", str(file), "--hellaswag", "-c", "128"]
    assert run([*command, "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["n_tasks"] == 40 and report["acc_norm"] * 40 == EXPECTED[name]
    assert report["n_processed"] < 0.8 * report["n_tokens"], "the context is computed once"
    assert run([*command, "--hellaswag-tasks", "3"]) == 0
    out = capsys.readouterr().out.splitlines()
    assert len(out) == 4 and re.fullmatch(r"3\t[\d.]+%\t\[[\d.]+%, [\d.]+%\]", out[-1])
    if PEER and name == "jamba-11m":
        words = [f"{PEER}/llama-perplexity", "-m", converted(name), "-f", file, "--hellaswag", "-c", 512, "-t", 2]
        done = subprocess.run(list(map(str, words)), capture_output=True, text=True, check=True)
        theirs = re.findall(r"^40\t([\d.]+)%", done.stdout + done.stderr, re.M)
        assert float(theirs[0]) == pytest.approx(100 * report["acc_norm"])


@pytest.mark.parametrize("name", ["jamba-11m", "mamba-bf16", "llama-unigram-bin"])
def test_scores_are_those_of_each_text_alone(name: str, converted: Callable[..., Path], tasks: str) -> None:
    some = read_tasks(tasks, "tasks")[:3]
    with LoadedModel.load(converted(name), n_ctx=128, n_seq_max=12) as model:
        texts = [[model.tokenizer.encode(f"{t.context} {e}") for e in t.endings] for t in some]
        got = [one.means for one in score(model, map(after_common_prefix, texts))]
        seq = model.sequence()
        for four, means in zip(texts, got, strict=True):
            first = common_prefix(four)
            for ids, mean in zip(four, means, strict=True):
                seq.clear()
                x = seq.logits_of(ids[:-1]).astype(np.float64)[first - 1 :]
                log_p = x[np.arange(len(x)), ids[first:]] - np.log(np.exp(x).sum(1))
                assert mean == pytest.approx(log_p.mean(), rel=1e-12)
        seq.close()
        result = hellaswag(model, some)
        right = sum(int(s.argmax()) == t.gold for s, t in zip(got, some, strict=True))
        assert result.acc_norm == right / 3 and 0 <= result.low <= result.acc_norm <= result.high <= 1
        assert model.n_free == 12
        with pytest.raises(UsageError, match=r"tokens, the context 128\.$") as refused:
            hellaswag(model, [HellaSwagTask("a " * 200, 0, ("b", "c", "d", "e"))])
        assert refused.value.remedy is Remedy.LARGER_CONTEXT
    with LoadedModel.load(converted(name), n_ctx=128, n_seq_max=3) as model:
        in_parts = hellaswag(model, some)
    assert in_parts.acc_norm == result.acc_norm and in_parts.n_processed > result.n_processed


def test_the_interval_is_wilsons(converted: Callable[..., Path]) -> None:
    from hybrid.infer.evaluate.hellaswag import _result

    result = _result(8, 10, 0, 0)
    assert (result.low, result.high) == pytest.approx((0.4902, 0.9433), abs=1e-4)
    assert _result(0, 5, 0, 0).low == pytest.approx(0, abs=1e-12)


GOOD = ["context", "2", "a", "b", "c", "d"]


@pytest.mark.parametrize(
    ("lines", "says"),
    [
        (GOOD[:5], "has 5 lines, expected 6 for every task"),
        ([], "expected 6 for every task"),
        ([*GOOD, "c", "4", *GOOD[2:]], "line 8: '4' is not the number of an ending, 0 to 3"),
        ([*GOOD[:1], "-1", *GOOD[2:]], "line 2: '-1' is not"),
        ([*GOOD[:1], "x" * 99, *GOOD[2:]], "line 2: 'x{40}' is not"),
        ([" ", *GOOD[1:]], "line 1 is empty, expected a context"),
        ([*GOOD[:5], ""], "line 6 is empty, expected an ending"),
    ],
)
def test_damaged_files(lines: list[str], says: str) -> None:
    with pytest.raises(UsageError, match=says) as caught:
        read_tasks("\n".join([*lines, ""]), "tasks.txt")
    assert str(caught.value).startswith("tasks.txt")
    assert len(read_tasks("\n".join(GOOD), "f")) == 1 and LINES == 6
    assert some_of(list(range(9)), 3) == some_of(list(range(9)), 3) and len(some_of([1, 2], 5)) == 2  # type: ignore
