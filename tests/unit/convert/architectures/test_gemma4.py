"""Gemma 4: heads of two widths, extra tensors of published checkpoints, and how llama.cpp runs the file."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import random_checkpoints
from random_checkpoints import CONFIGS
from safetensors.numpy import load_file, save_file

from hybrid.convert.plan import prepare
from hybrid.quant.ggml.errors import CheckpointError, UnsupportedError
from hybrid.quant.ggml.types import FileType

C, U = CheckpointError, UnsupportedError
EACH = {"1": {"head_dim": 40, "num_key_value_heads": 2}}


def family(name: str, change: dict[str, Any]) -> Any:
    config = {"vocab_size": random_checkpoints.N_VOCAB, "max_position_embeddings": 512, **CONFIGS[name], **change}
    return random_checkpoints.family_for(config)


def test_sizes_of_heads_by_layer_are_those_of_the_published_keys() -> None:
    published = family("gemma4", {})
    each = {"global_head_dim": None, "num_global_key_value_heads": None}
    per_layer = family("gemma4", {**each, "per_layer_config": {str(i): EACH["1"] for i in (1, 3, 5)}})
    both = [
        (dict(one.keys(FileType.F32)), [(row.target, row.shape) for row in one.rows()])
        for one in (published, per_layer)
    ]
    assert both[0] == both[1]
    assert both[0][0]["attention.head_count_kv"] == [3, 2, 3, 2, 3, 2]


def test_heads_of_keys_count_where_values_are_keys() -> None:
    """As in transformers."""
    assert family("gemma4", {"attention_k_eq_v": False}).heads_full.n_kv == 3


def test_the_last_layer_sees_all_tokens() -> None:
    assert family("gemma4-order", {}).local == (False, True, True, False, False)


@pytest.mark.parametrize(
    ("change", "kind", "message"),
    [
        ({"attention_bias": True}, U, "attention_bias"),
        ({"use_bidirectional_attention": "all"}, U, "use_bidirectional_attention"),
        ({"hidden_activation": "silu"}, U, "hidden_activation"),
        ({"sliding_window": None}, C, "sliding_window = null .*for the layers of sliding_attention"),
        ({"num_kv_shared_layers": 6}, C, "num_kv_shared_layers = 6.*from 0 to 5"),
        ({"num_kv_shared_layers": 5}, C, "num_kv_shared_layers = 5.*a layer of each kind before"),
        ({"vocab_size_per_layer_input": 7}, C, "vocab_size_per_layer_input = 7.*one row for each of the"),
        ({"global_head_dim": 41}, C, "global_head_dim = 41.*even size"),
        ({"num_global_key_value_heads": 4}, C, "num_global_key_value_heads = 4.*a divisor of the 6"),
        ({"per_layer_config": {"1": {"head_dim": 40}}}, U, "per_layer_config = .*only one head_dim"),
        ({"per_layer_config": {"0": {"head_dim": 40}}}, U, "per_layer_config = .*only one head_dim"),
        ({"per_layer_config": {str(i): {"sliding_window": 3} for i in (1, 3, 5)}}, U, "per_layer_config = "),
        ({"top_k_experts": 8}, C, "top_k_experts = 8.*1 to 7"),
        ({"num_experts": None}, C, "has no num_experts"),
    ],
)
def test_errors(change: dict[str, Any], kind: type[Exception], message: str) -> None:
    with pytest.raises(kind, match=message):
        family("gemma4", change)


def test_notes() -> None:
    assert not list(family("gemma4", {}).notes())
    notes = " ".join(family("gemma4-order", {}).notes())
    assert "from the two layers in front of them" in notes
    assert "more rows than tokens" in notes


def test_a_published_checkpoint(tmp_path: Path) -> None:
    """With towers, the text model under a prefix, and tensors of layers that share keys and values."""
    folder = random_checkpoints.write(CONFIGS["gemma4"], tmp_path / "model")
    text = json.loads((folder / "config.json").read_text())
    plain = prepare(folder, with_vocabulary=False)
    tensors = load_file(folder / "model.safetensors")
    whole = {name.replace("model.", "model.language_model.", 1): values for name, values in tensors.items()}
    for tower in ("vision_tower.patch.weight", "audio_tower.conv.weight", "embed_vision.proj.weight"):
        whole[f"model.{tower}"] = np.ones((3, 5), np.float32)
    for part in ("k_proj", "v_proj", "k_norm"):
        whole[f"model.language_model.layers.4.self_attn.{part}.weight"] = np.ones((2, 2), np.float32)
    save_file(whole, folder / "model.safetensors")
    config = {"architectures": ["Gemma4ForConditionalGeneration"], "text_config": text, "vision_config": {"depth": 3}}
    (folder / "config.json").write_text(json.dumps(config))
    found = prepare(folder, with_vocabulary=False)
    assert [t.name for t in found.plan.tensors] == [t.name for t in plain.plan.tensors]
    assert found.plan.metadata.keys() == plain.plan.metadata.keys()
    notes = " ".join(found.plan.notes)
    assert "model.vision_tower.patch.weight" in notes and "left out: no part of the language model" in notes
    assert not [t.name for t in found.plan.tensors if t.name.startswith("blk.4.attn_k")]
