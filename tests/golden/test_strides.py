"""Perplexity with a stride, by chunk and by position: compared with llama-perplexity and with models in float64."""

import json
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
from hybrid.infer.evaluate.perplexity import perplexity
from hybrid.infer.evaluate.windows import log_likelihood

EXPECTED: dict[str, Any] = json.loads((Path(__file__).with_name("scores") / "expected.json").read_text())


@pytest.mark.slow
@pytest.mark.parametrize("name", ["llama-unigram-bin", "jamba-11m"])
def test_figures_of_llama_perplexity(name: str, converted: Callable[..., Path], prose: Path) -> None:
    """--ppl-stride 512 and --ppl-output-type 1, with contexts of 512 tokens."""
    text = prose.read_text()
    with LoadedModel.load(converted(name), n_ctx=768, n_seq_max=2, precision="exact") as model:
        strided = perplexity(model, text, n_ctx=512, stride=512)
        np.testing.assert_allclose(strided.running, EXPECTED["stride"][name], rtol=4e-6)
        theirs = EXPECTED["chunks"][name]
        for n, (ppl, mean, error) in list(enumerate(theirs, 1))[::3]:
            ours = perplexity(model, text, n_ctx=512, chunks=n)
            assert (ours.ppl, ours.mean_nll) == pytest.approx((ppl, mean), rel=4e-6)
            assert ours.stderr / ours.ppl == pytest.approx(error, abs=2e-6)
        assert ours.n_chunks == len(theirs)


@pytest.mark.parametrize("name", ["mamba-bf16", pytest.param("jamba-11m", marks=pytest.mark.slow)])
def test_figures_of_a_model_in_float64(
    name: str, golden: Callable[[str], Golden], converted: Callable[..., Path], prose: Path
) -> None:
    """A recurrent model, for which llama-perplexity loses figures, and a hybrid one."""
    source = golden(name).source
    tensors = {n: f32(t) for n, t in Checkpoint(source).tensors.items()}
    reference = Reference(json.loads((source / "config.json").read_text()), tensors)
    with LoadedModel.load(converted(name), n_ctx=64, n_seq_max=3, precision="exact") as model:
        ids = model.tokenizer.encode(prose.read_text()[:1500])[:100]
        strided = perplexity(model, ids, n_ctx=24, stride=20)
        by_position = perplexity(model, ids, n_ctx=32, n_buckets=5).by_position
        bos = model.tokenizer.bos if model.tokenizer.add_bos else None

    def scores(window: list[int]) -> np.ndarray:
        return -log_likelihood(reference.logits(window)[:-1], window[1:])

    windows = [ids[start : start + 34] for start in range(0, len(ids) - 34, 20)]
    each = [scores(window)[-20:].mean() for window in windows]
    np.testing.assert_allclose(np.log(strided.running), [np.mean(each[: i + 1]) for i in range(4)], rtol=1e-5)
    places = np.stack(
        [scores([ids[begin] if bos is None else bos, *ids[begin + 1 : begin + 32]]) for begin in (0, 32, 64)]
    )
    for bucket in by_position:
        expected = places[:, bucket.first - 1 : bucket.end - 1]
        assert bucket.mean_nll == pytest.approx(expected.mean(), rel=1e-5) and bucket.n_scored == expected.size


def test_the_command(converted: Callable[..., Path], prose: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["perplexity", str(converted("mamba-bf16")), "-f", str(prose), "-c", "64", "--chunks", "3"]
    assert run([*command, "--by-position", "4", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert [(b["first"], b["end"]) for b in report["by_position"]] == [(1, 16), (16, 32), (32, 48), (48, 64)]
    assert run([*command, "--by-position", "4"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("[1]") and lines[-1].startswith("Final estimate: PPL = ")
    assert [line.split()[0] for line in lines[2:6]] == ["1-15", "16-31", "32-47", "48-63"]
    for line, bucket in zip(lines[2:6], report["by_position"], strict=True):
        assert line.split()[1:] == [str(bucket["n_scored"]), f"{bucket['ppl']:.4f}", "+/-", f"{bucket['stderr']:.5f}"]
    assert run([*command, "--by-position", "64"]) == 2
    assert "64 buckets: chunks of 64 tokens" in capsys.readouterr().err
    assert run([*command, "--by-position", "4", "--stride", "8"]) == 2
    assert "leave out the stride" in capsys.readouterr().err
