"""Which layers are recurrent, in files whose tensors say so here and whose keys say so to llama.cpp."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hybrid.quant.ggml.errors import UnsupportedError
from hybrid.quant.ggml.families.hparams import Hparams
from hybrid.quant.ggml.families.layer_keys import without_layers
from hybrid.quant.ggml.header import Header

KINDS, PERIOD = "qwen3next.attention.recurrent_layers", "qwen3next.full_attention_interval"


def changed(kept: list[int], **keys: Any) -> dict[str, Any]:
    """The changes for 6 layers, the last of which guesses tokens ahead."""
    own = {f"qwen3next.{name}": value for name, value in keys.items()}
    gguf = Header(Path("m.gguf"), own, {}, lambda name: np.zeros(0, np.uint8))
    h = Hparams(n_layer=6, n_ahead=1, n_embd=8, n_ctx_train=8, eps=1e-5)
    return without_layers(gguf, "qwen3next", h, kept)


@pytest.mark.parametrize(
    ("kept", "keys", "expected"),
    [
        ([0, 1, 2, 3, 4, 5], {}, {}),
        ([0, 1, 2, 3, 5], {}, {}),
        ([0, 1, 3, 4, 5], {}, {KINDS: [True, True, False, True, False]}),
        ([0, 2, 4, 5], {"full_attention_interval": 2}, {KINDS: [True, True, True, False], PERIOD: None}),
        ([0, 1, 4, 5], {"full_attention_interval": 2}, {}),
        ([1, 2], {"attention.recurrent_layers": [True, False, True, True, True, False]}, {KINDS: [False, True]}),
    ],
)
def test_recurrent_layers(kept: list[int], keys: dict[str, Any], expected: dict[str, Any]) -> None:
    assert changed(kept, **keys) == {"qwen3next.block_count": len(kept)} | expected


def test_keys_without_a_field() -> None:
    keys = {
        "attention.head_count": [1, 2, 3, 4, 5, 6], "feed_forward_length": 7, "leading_dense_block_count": 2,
        "activation_sparsity_scale": [0.5] * 6, "rope.dimension_sections": [1, 2, 3, 0, 0, 0],
    }  # fmt: skip
    found = {key.removeprefix("qwen3next."): value for key, value in changed([1, 3, 5], **keys).items()}
    assert found.pop("attention.head_count").tolist() == [2, 4, 6]
    assert found.pop("activation_sparsity_scale").tolist() == [0.5] * 3
    assert found == {
        "block_count": 3,
        "leading_dense_block_count": 1,
        "attention.recurrent_layers": [True, False, False],
    }


def test_numbers_of_layers() -> None:
    assert changed([0, 2, 4], **{"ple.layers": [1, 2, 4]})["qwen3next.ple.layers"].tolist() == [1, 2]
    message = r"^m\.gguf: of the layers of qwen3next\.ple\.layers none would be left\. Leave out other layers\.$"
    with pytest.raises(UnsupportedError, match=message):
        changed([0, 2, 4], **{"ple.layers": [1, 3]})
