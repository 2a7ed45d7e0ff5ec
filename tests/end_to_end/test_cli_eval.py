"""`hybrid eval`: the tasks of lm-evaluation-harness, from files, without a network."""

import json
import socket
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from end_to_end.outcomes import Cli, ok
from harness_tasks import write_tasks

from hybrid.cli.main import run
from hybrid.convert import convert
from hybrid.infer import Model

pytest.importorskip("lm_eval")
pytestmark = pytest.mark.slow

NAMES = {"mamba": "mamba-bf16", "jamba": "jamba-dense", "llama": "llama-unigram-bin"}


@pytest.fixture(scope="module")
def tasks(tmp_path_factory: pytest.TempPathFactory, prose: Path) -> Path:
    return write_tasks(tmp_path_factory.mktemp("tasks"), prose)


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory, data_dir: Path) -> Callable[[str], Path]:
    """By kind: a recurrent model, one that also has attention, one that has nothing else."""
    folder = tmp_path_factory.mktemp("models")

    def make(kind: str) -> Path:
        path = folder / f"{kind}.gguf"
        if not path.exists():
            convert(data_dir / "checkpoints" / NAMES[kind], path, outtype="f32")
        return path

    return make


@pytest.fixture(autouse=True)
def _no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody asks for a name, and nobody connects."""

    def refused(*_: object, **__: object) -> Any:
        raise AssertionError("a connection was tried")

    monkeypatch.setattr(socket.socket, "connect", refused)
    monkeypatch.setattr(socket, "getaddrinfo", refused)


def ln_p(model: Model, context: str, continuation: str) -> tuple[float, bool]:
    """Of one continuation by itself: float64, from the logits of the whole text."""
    encode = lambda text: model.tokenizer.encode(text, parse_special=True)
    ids, first = encode(context + continuation), len(encode(context))
    seq = model.sequence()
    x = seq.logits_of(ids[:-1])[first - 1 :].astype(np.float64)
    seq.close(remember=False)
    value = x[np.arange(len(x)), ids[first:]] - np.log(np.exp(x - x.max()).sum(1)) - x.max()
    return float(value.sum()), x.argmax(1).tolist() == ids[first:]


@pytest.mark.parametrize("kind", NAMES)
def test_choices_are_scored_as_one_by_one(
    kind: str, models: Callable[[str], Path], tasks: Path, cli: Cli, tmp_path: Path
) -> None:
    file = tmp_path / "results.json"
    told = cli(
        "eval", models(kind), "--tasks", "halves", "--tasks-dir", tasks, "--num_fewshot", 2, "--limit", 5,
        "--log_samples", "-o", file, "-c", 512,
    )  # fmt: skip
    out = ok(told).splitlines()
    results = json.loads(file.read_text())
    assert set(results) >= {"results", "configs", "versions", "n-shot", "samples", "config", "higher_is_better"}
    assert results["n-shot"] == {"halves": 2} and results["versions"] == {"halves": 1.0}
    assert results["config"]["model_dtype"] == "F32" and results["config"]["limit"] == 5
    assert results["n-samples"] == {"halves": {"original": 12, "effective": 5}}
    samples = results["samples"]["halves"]
    assert len(samples) == 5
    right = 0
    with Model.load(models(kind), n_ctx=512) as model:
        for sample in samples:
            scores = []
            for (context, ending), (got,) in zip(sample["arguments"], sample["resps"], strict=True):
                assert context.count("Reading: ") == 3, "two examples before the question"
                want = ln_p(model, context, ending)
                assert got == pytest.approx(want, rel=1e-12)
                scores.append(want[0] / len(ending.strip()))
            right += int(np.argmax(scores)) == sample["doc"]["gold"]
    assert results["results"]["halves"]["acc_norm,none"] == right / 5
    assert out[0].split() == ["task", "version", "filter", "n-shot", "metric", "value", "stderr"]
    assert out[2].split()[:6] == ["halves", "1.0", "none", "2", "acc_norm", f"{right / 5:.4f}"]
    processed, _, n_tokens = told[2].splitlines()[-1].split()[:3]
    assert int(processed) < int(n_tokens) / 2, "examples and contexts are read once"


def test_nothing_of_torch_is_imported_and_nothing_is_said(models: Callable[[str], Path], tasks: Path, cli: Cli) -> None:
    code, out, err = cli("eval", models("mamba"), "--tasks", "halves", "--tasks-dir", tasks, "--limit", 2, "--json")
    assert code == 0 and json.loads(out)["results"]["halves"]
    assert len(err.splitlines()) == 1 and "tokens processed" in err
    assert "torch" not in sys.modules and "transformers" not in sys.modules


def test_run_is_the_entry(models: Callable[[str], Path]) -> None:
    assert run(["eval", str(models("mamba"))]) == 2
