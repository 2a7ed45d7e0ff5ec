"""Weights of models that are larger than the memory: the same results, and requests for the experts of each token."""

from pathlib import Path

import numpy as np
import pytest
from random_models import random_model

from hybrid.infer import LoadedModel
from hybrid.infer.loading import weights
from hybrid.quant.ggml.machine_memory import MachineMemory
from hybrid.quant.ggml.reader import GGUFFile

IDS = np.random.default_rng(5).integers(0, 2000, 40).tolist()


def results(path: Path) -> tuple[np.ndarray, set[str], set[str]]:
    """Logits of a prompt and of the tokens after it; names of ops of one token; names of stacks asked for."""
    with LoadedModel.load(path, n_ctx=64) as model:
        seq = model.sequence()
        logits = [seq.prefill(IDS), *(seq.decode(token) for token in IDS[:5])]
        engine = model.runner.engine
        ops = {op.name for op in engine.program("step", 1)[0].ops}
        return np.stack(logits), ops, {w.name for w in engine.network.weights.matrices if w.fetched}


@pytest.mark.parametrize("name", ["qwen3moe", "gpt-oss-rounded", "nemotron-h-moe"])
def test_same_bits(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    path = random_model(name)
    expected, ops, fetched = results(path)
    assert not fetched and not any(op.startswith("fetch_") for op in ops)
    monkeypatch.setattr(weights, "machine_memory", lambda: MachineMemory.of(path.stat().st_size // 2))
    got, ops, fetched = results(path)
    np.testing.assert_array_equal(got, expected)
    stacks = {part for part in ("gate", "up", "down", "gate_up") if f"blk.1.ffn_{part}_exps.weight" in fetched}
    assert len(stacks) >= 2 and {f"fetch_{part}" for part in stacks} <= ops


@pytest.mark.parametrize("tied", [True, False])
def test_an_embedding_that_is_only_looked_up_is_read_in_parts(tied: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = list[str]()
    monkeypatch.setattr(weights, "machine_memory", lambda: MachineMemory.of(1))
    monkeypatch.setattr(GGUFFile, "expect_parts", lambda self, name: asked.append(name))
    results(random_model("qwen3" if tied else "mistral"))
    assert asked == ([] if tied else ["token_embd.weight"])
