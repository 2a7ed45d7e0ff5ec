"""PLaMo 2: which layers have attention, their windows, and how llama.cpp runs the file."""

from typing import Any

import numpy as np
import pytest
import random_checkpoints
from random_checkpoints import CONFIGS

from hybrid.convert.architectures import Family
from hybrid.convert.transforms import plus
from hybrid.quant.ggml.errors import CheckpointError, UnsupportedError
from hybrid.quant.ggml.types import FileType

C, U = CheckpointError, UnsupportedError
WINDOW = "hybrid.attention.sliding_window"


def family(name: str = "plamo2", **change: Any) -> Family:
    config = {"vocab_size": 8, "max_position_embeddings": 512, **CONFIGS[name], **change}
    return random_checkpoints.family_for({key: value for key, value in config.items() if value is not ...})


def keys(name: str = "plamo2", **change: Any) -> dict[str, Any]:
    return dict(family(name, **change).keys(FileType.F32))


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({}, [0, 1, 0, 1, 0]),
        ({"mamba_step": ...}, [0, 1, 0, 1, 0]),
        ({"mamba_step": 4}, [0, 0, 1, 0, 0]),
        ({"mamba_step": 3}, [0, 1, 0, 0, 1]),
        ({"mamba_step": 10}, [0, 0, 0, 0, 1]),  # too few layers: the last
        ({"mamba_enabled": False}, [1] * 5),
    ],
)
def test_layers_with_attention(change: dict[str, Any], expected: list[int]) -> None:
    assert keys(**change)["attention.head_count_kv"] == expected
    assert keys(**change)["attention.head_count"] == 5  # for all layers: llama.cpp takes layer 0's for the model's


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({}, [0, 12, 0, 0, 0]),
        ({"full_attention_idx": []}, [0, 12, 0, 12, 0]),
        ({"full_attention_idx": None, "attention_window_size": ...}, [0, 2049, 0, 2049, 0]),
        ({"full_attention_idx": [1, 3]}, None),
    ],
)
def test_windows(change: dict[str, Any], expected: list[int] | None) -> None:
    assert keys(**change).get(WINDOW) == expected


def test_notes() -> None:
    notes = list(family().notes())
    assert any("beyond 12 tokens its results differ" in note for note in notes)
    assert any("an epsilon of 0.0003" in note for note in notes)
    assert not list(family("plamo2-full").notes())
    assert keys()["hybrid.attention.head_norm_rms_epsilon"] == 1e-6
    assert "hybrid.attention.head_norm_rms_epsilon" not in keys("plamo2-full")


def test_norms_get_what_their_weights_lack() -> None:
    got = plus(1 / 5).apply(np.array([[0.25], [-0.2]], np.float32), 0)
    assert got.dtype == np.float32
    assert got[:, 0].tolist() == pytest.approx([0.45, 0.0], abs=1e-7)


@pytest.mark.parametrize(
    ("change", "kind", "message"),
    [
        ({"mamba_step": 1}, C, "mamba_step = 1.*from 2"),
        ({"num_key_value_heads": 2}, C, "num_key_value_heads = 2.*a divisor of the 5 attention heads"),
        ({"hidden_size_per_head": 23}, C, "hidden_size_per_head = 23.*even size"),
        ({"full_attention_idx": "all"}, C, "full_attention_idx = .*numbers of layers"),
        ({"full_attention_idx": [True]}, C, "full_attention_idx"),
        ({"mamba_d_conv": 1}, C, "mamba_d_conv = 1.*from 2"),
        ({"eval_mlp_n_bit": 4}, U, "eval_mlp_n_bit = 4 is not supported"),
    ],
)
def test_errors(change: dict[str, Any], kind: type[Exception], message: str) -> None:
    with pytest.raises(kind, match=message):
        family(**change)
