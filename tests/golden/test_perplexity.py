"""Likelihoods of the trained Jamba, token by token, compared with transformers in float32 (golden/ppl.json,
ppl.npz)."""

import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from hybrid.convert import convert
from hybrid.infer import LoadedModel
from hybrid.infer.evaluate.perplexity import perplexity
from hybrid.infer.evaluate.windows import Window, score_windows


@pytest.fixture(scope="module")
def golden(shared_dir: Path) -> Path:
    return shared_dir / "checkpoints" / "jamba-trained-bf16" / "golden"


@pytest.fixture(scope="module")
def model(golden: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LoadedModel]:
    path = tmp_path_factory.mktemp("jamba") / "jamba-f32.gguf"
    convert(golden.parent, path, outtype="f32")
    with LoadedModel.load(path, n_ctx=256, n_seq_max=4, n_threads=2, kv_type="f32") as loaded:
        yield loaded


@pytest.fixture(scope="module")
def text(shared_dir: Path) -> str:
    return (shared_dir / "checkpoints" / "text" / "heldout.txt").read_text(encoding="utf-8")


def test_running_estimates_of_llama_perplexity(model: LoadedModel, text: str, golden: Path) -> None:
    expected = json.loads((golden / "ppl.json").read_text())["B"]["first_4_cumulative"]
    result = perplexity(model, text, n_ctx=256, chunks=4)
    print("largest relative difference", np.abs(np.array(result.running) / expected - 1).max())
    np.testing.assert_allclose(result.running, expected, rtol=5e-6)
    assert result.n_tokens == 113900
    assert result.n_parallel == 4


def test_every_token_of_whole_windows(model: LoadedModel, text: str, golden: Path) -> None:
    """Protocol A of the goldens: BOS and 255 tokens, all 255 scored."""
    expected = np.load(golden / "ppl.npz")["nll_A"][:6]
    assert model.tokenizer.bos is not None
    ids = model.tokenizer.encode(text[:20000], add_special=False)
    windows = [Window([model.tokenizer.bos, *ids[255 * i : 255 * (i + 1)]], 0) for i in range(6)]
    scores = np.stack(list(score_windows(model, windows, 3)))
    print("largest difference", np.abs(scores - expected).max(), "nats")
    np.testing.assert_allclose(scores, expected, atol=2e-4, rtol=0)
