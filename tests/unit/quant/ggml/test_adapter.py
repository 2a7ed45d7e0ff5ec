"""LoRA adapters in GGUF: the factor that a reader applies, and refused files."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hybrid.quant.ggml.adapter import Adapter, open_all
from hybrid.quant.ggml.errors import FormatError, HybridError, UsageError
from hybrid.quant.ggml.types import GGMLType, ValueType
from hybrid.quant.ggml.writer import GGUFWriter

A, B = np.arange(6, dtype=np.float32).reshape(2, 3), np.arange(10, dtype=np.float32).reshape(5, 2)
PAIR = {"w.weight.lora_a": A, "w.weight.lora_b": B}
KEYS = {"general.type": "adapter", "adapter.type": "lora", "adapter.lora.alpha": 6.0}


def write(path: Path, tensors: dict[str, np.ndarray], **changes: Any) -> Path:
    with GGUFWriter(path, "llama") as writer:
        for key, value in (KEYS | {name.replace("__", "."): v for name, v in changes.items()}).items():
            if value is not None:
                writer.add(key, value)
        for name, values in tensors.items():
            writer.declare(name, values.shape, GGMLType.F32)
        for name, values in tensors.items():
            writer.write(name, values)
    return path


@pytest.mark.parametrize(("alpha", "factor"), [(6.0, 1.5), (0.0, 0.5), (None, 0.5)])
def test_the_factor(alpha: float | None, factor: float, tmp_path: Path) -> None:
    path = write(tmp_path / "a.gguf", PAIR, adapter__lora__alpha=alpha)
    adapter = Adapter.open((path, 0.5), "llama")
    assert "w.weight" in adapter and "v.weight" not in adapter and adapter.label == "a:0.5"
    a, b = adapter.pair("w.weight", 1, 5, 3)
    np.testing.assert_array_equal(a, A[None])
    np.testing.assert_array_equal(b, B[None] * np.float32(factor))


def test_experts(tmp_path: Path) -> None:
    stack = {name: np.stack([values + e for e in range(4)]) for name, values in PAIR.items()}
    adapter = Adapter.open((write(tmp_path / "a.gguf", stack), 1.0), "llama")
    a, b = adapter.pair("w.weight", 4, 5, 3)
    assert a.shape == (4, 2, 3) and b.shape == (4, 5, 2)
    for n_expert, rows, n in ((3, 5, 3), (4, 6, 3), (4, 5, 4)):
        with pytest.raises(FormatError, match=r"w\.weight has shapes .* for this model it needs . times \[rank, "):
            adapter.pair("w.weight", n_expert, rows, n)


@pytest.mark.parametrize(
    ("tensors", "changes", "says"),
    [
        (PAIR, {"general__type": "model"}, r"a\.gguf is not a LoRA adapter\.$"),
        (PAIR, {"adapter__type": "control"}, "is not a LoRA adapter"),
        (PAIR, {"adapter__lora__alpha": float("nan")}, r"adapter\.lora\.alpha = nan, expected a number"),
        (PAIR, {"adapter__lora__alpha": "six"}, r"adapter\.lora\.alpha = six, expected a number"),
        (PAIR, {"adapter__alora__invocation_tokens": [1, -2]}, "invocation_tokens is not a list of tokens"),
        (PAIR, {"adapter__alora__invocation_tokens": "text"}, "invocation_tokens is not a list of tokens"),
        ({"w.weight.lora_a": A}, {}, r"lacks w\.weight\.lora_b"),
        ({"w.weight": A}, {}, r"w\.weight is neither lora_a nor lora_b"),
        ({}, {}, "holds no tensors"),
        ({"token_embd.weight.lora_a": A, "token_embd.weight.lora_b": B}, {}, "adapts the embedding"),
    ],
)
def test_files_that_are_refused(
    tensors: dict[str, np.ndarray], changes: dict[str, Any], says: str, tmp_path: Path
) -> None:
    path = write(tmp_path / "a.gguf", tensors, **changes)
    with pytest.raises(HybridError, match=says):
        Adapter.open((path, 1.0), "llama")


def test_given_wrongly(tmp_path: Path) -> None:
    path = write(tmp_path / "a.gguf", PAIR)
    with pytest.raises(UsageError, match=r"a\.gguf adapts models of architecture llama, this one is jamba"):
        open_all([(path, 1.0)], "jamba")
    with pytest.raises(UsageError, match="its scale is nan, expected a number"):
        open_all([(path, float("nan"))], "llama")
    with pytest.raises(UsageError, match=r"b\.gguf does not exist"):
        open_all([(path, 1.0), (tmp_path / "b.gguf", 1.0)], "llama")


def test_values_that_are_no_numbers(tmp_path: Path) -> None:
    adapter = Adapter.open((write(tmp_path / "a.gguf", PAIR | {"w.weight.lora_b": B * np.nan}), 1.0), "llama")
    with pytest.raises(FormatError, match=r"w\.weight\.lora_b contains NaN or infinity"):
        adapter.pair("w.weight", 1, 5, 3)
    assert ValueType.FLOAT32 is adapter.gguf.value_types["adapter.lora.alpha"]
