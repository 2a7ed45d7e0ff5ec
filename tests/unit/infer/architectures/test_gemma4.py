"""Gemma 4: files of other converters, refused files, and what is kept per token."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import tiny_models
from tiny_models import D_HEAD, N_EMBD, N_FF, N_VOCAB, Tensor, Tiny

from hybrid.infer import LoadedModel
from hybrid.infer.engine.layer_facts import layer_facts
from hybrid.quant.ggml.errors import FormatError
from hybrid.quant.ggml.reader import GGUFFile

IDS = np.random.default_rng(5).integers(3, N_VOCAB, 20).tolist()


@pytest.fixture
def file(tmp_path: Path) -> Callable[..., Path]:
    def make(change: Callable[[Tiny], object] = lambda tiny: None) -> Path:
        tiny = tiny_models.gemma4()
        change(tiny)
        return tiny.write(tmp_path / f"{len(list(tmp_path.iterdir()))}.gguf")

    return make


def logits(path: Path) -> np.ndarray:
    with LoadedModel.load(path, n_ctx=64, n_threads=2) as model:
        return model.sequence().logits_of(IDS)


def random(*shape: int) -> Tensor:
    return Tensor(np.random.default_rng(3).standard_normal(shape).astype(np.float32))


def test_keys_and_values_that_nobody_uses_are_passed_over(file: Callable[..., Path]) -> None:
    """The published checkpoints have these tensors, and llama.cpp's converter writes them."""

    def change(tiny: Tiny) -> None:
        for part in "kv":
            tiny.tensors[f"blk.2.attn_{part}.weight"] = random(2 * D_HEAD, N_EMBD)
        tiny.tensors["blk.2.attn_k_norm.weight"] = random(D_HEAD)

    np.testing.assert_array_equal(logits(file(change)), logits(file()))


def test_gate_and_up_of_experts_may_be_apart(file: Callable[..., Path]) -> None:
    def change(tiny: Tiny) -> None:
        both = tiny.tensors.pop("blk.0.ffn_gate_up_exps.weight").values
        for part, values in (("gate", both[:, :N_FF]), ("up", both[:, N_FF:])):
            tiny.tensors[f"blk.0.ffn_{part}_exps.weight"] = Tensor(values)

    np.testing.assert_allclose(logits(file(change)), logits(file()), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("name", ["ffn_down_exps.scale", "layer_output_scale.weight"])
def test_factors_of_one_may_be_absent(name: str, file: Callable[..., Path]) -> None:
    def ones(tiny: Tiny) -> None:
        tensor = tiny.tensors[f"blk.0.{name}"]
        tensor.values = np.ones_like(tensor.values)

    def without(tiny: Tiny) -> None:
        del tiny.tensors[f"blk.0.{name}"]

    assert np.abs(logits(file(ones)) - logits(file())).max() > 1e-3
    np.testing.assert_array_equal(logits(file(ones)), logits(file(without)))


def test_what_is_kept_of_a_token(file: Callable[..., Path]) -> None:
    """Keys and values that layers share are kept once."""
    path = file()
    with LoadedModel.load(path, n_ctx=64, n_threads=1) as model:
        specs = model.engine.memory.attention.specs
        kept = model.engine.memory.bytes_kv_per_token
    assert [(s.layer, s.n_kv, s.d_head, s.window) for s in specs] == [(0, 2, 8, 5), (1, 1, 12, 0)]
    with GGUFFile.open(path) as gguf:
        facts = layer_facts(gguf)
    assert [layer.letters for layer in facts] == ["AE", "A", "A"]
    assert sum(layer.kv_nbytes_per_token for layer in facts) == 2 * (2 * 2 * 8 + 2 * 12) <= kept


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda t: t.set(".attention.shared_kv_layers", 2), "shared_kv_layers = 2, expected before layer 1 one that"),
        (
            lambda t: t.set(".attention.head_count_kv", [2, 1, 1], 5),
            "shared_kv_layers = 1, expected before layer 2 one",
        ),
        (lambda t: t.set(".attention.shared_kv_layers", 3), "shared_kv_layers = 3, expected before layer 0 one that"),
        (lambda t: t.set(".attention.shared_kv_layers", 9), "shared_kv_layers = 9, expected before layer 0 one that"),
        (lambda t: t.set(".embedding_length_per_layer_input", 4), r"per_layer_token_embd.* \[vocabulary, 12\]"),
        (lambda t: t.set(".expert_used_count", 4), "expert_used_count = 4, expected 1 to 3"),
        (
            lambda t: t.tensors.update({"per_layer_token_embd.weight": random(N_VOCAB - 1, 9)}),
            f"per_layer_token_embd.weight has {N_VOCAB - 1} rows, expected one for each of the {N_VOCAB} tokens",
        ),
        (lambda t: t.tensors.pop("blk.1.post_norm.weight"), "post_norm.weight"),
    ],
)
def test_refused(change: Callable[[Tiny], object], message: str, file: Callable[..., Path]) -> None:
    with pytest.raises(FormatError, match=message):
        logits(file(change))
