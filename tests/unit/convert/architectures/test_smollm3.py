"""SmolLM3: which layers have RoPE and which a window, and how llama.cpp runs the file."""

from typing import Any

import pytest
import random_checkpoints
from random_checkpoints import CONFIGS

from hybrid.convert.architectures import Family
from hybrid.quant.ggml.errors import CheckpointError
from hybrid.quant.ggml.types import FileType

PATTERN, WINDOW = "hybrid.rope.layer_pattern", "hybrid.attention.sliding_window"
FULL, LOCAL = "full_attention", "sliding_attention"
ON = {"use_sliding_window": True, "sliding_window": 9}
LLAMA3 = {"rope_type": "llama3", "factor": 8.0, "original_max_position_embeddings": 64}


def family(**change: Any) -> Family:
    config = {"vocab_size": 8, "max_position_embeddings": 512, **CONFIGS["smollm3"], **change}
    return random_checkpoints.family_for({key: value for key, value in config.items() if value is not ...})


def keys(**change: Any) -> dict[str, Any]:
    return dict(family(**change).keys(FileType.F32))


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({}, None),
        ({"no_rope_layers": [1, 1, 1, 0, 1]}, None),
        ({"no_rope_layers": [1, 1, 1, 0, 1, 1, 1, 0]}, None),  # the list may go on after the last layer
        ({"no_rope_layers": [0, 1, 1, 1, 0]}, [False, True, True, True, False]),
        ({"no_rope_layers": [0, 1, 1, 1, 0], "no_rope_layer_interval": 2}, [False, True, True, True, False]),
        ({"no_rope_layer_interval": 2}, [True, False, True, False, True]),
        ({"no_rope_layer_interval": 1}, [False] * 5),
        ({"no_rope_layer_interval": 6}, [True] * 5),
    ],
)
def test_layers_with_rope(change: dict[str, Any], expected: list[bool] | None) -> None:
    assert keys(**change).get(PATTERN) == expected
    assert any("its results differ" in note for note in family(**change).notes()) == (expected is not None)


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"sliding_window": 9}, None),
        ({"use_sliding_window": True}, None),
        (ON, [0, 0, 0, 9, 0]),
        ({**ON, "no_rope_layers": [0, 1, 1, 1, 0]}, [9, 0, 0, 0, 9]),
        ({**ON, "layer_types": [LOCAL, LOCAL, FULL, FULL, FULL]}, [9, 9, 0, 0, 0]),  # whether they have RoPE or not
    ],
)
def test_windows(change: dict[str, Any], expected: list[int] | None) -> None:
    assert keys(**change).get(WINDOW) == expected


def test_what_the_class_has_where_a_config_says_nothing() -> None:
    model = family(rope_theta=..., max_position_embeddings=...)
    fields = dict(model.keys(FileType.F32))
    assert fields["rope.freq_base"] == 2e6
    assert fields["context_length"] == 32768
    assert model.tied


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"no_rope_layers": [1, 1]}, "no_rope_layers = .*5 times 1 for a layer with RoPE or 0"),
        ({"no_rope_layers": [1, 1, 1, 2, 1]}, "no_rope_layers"),
        ({"no_rope_layers": [1, 1, 1, None, 1]}, "no_rope_layers"),
        ({"no_rope_layers": 4}, "no_rope_layers = 4"),
        ({"no_rope_layer_interval": 0}, "no_rope_layer_interval = 0.*from 1"),
        ({"layer_types": [LOCAL] * 5}, "layer_types = .*no sliding_attention"),
    ],
)
def test_errors(change: dict[str, Any], message: str) -> None:
    with pytest.raises(CheckpointError, match=message):
        family(**change)


@pytest.mark.parametrize("change", [{"attention_bias": True}, {"mlp_bias": True}, {"rope_scaling": LLAMA3}])
def test_what_llama_cpp_cannot_load(change: dict[str, Any]) -> None:
    assert any("cannot load this file" in note for note in family(**change).notes())
    assert not list(family().notes())
