"""Llama 4: which layers have RoPE, chunks and experts, how llama.cpp runs the file, and the text model of a model with
pictures."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import random_checkpoints
from random_checkpoints import CONFIGS
from safetensors.numpy import load_file, save_file

from hybrid.convert import convert, verify
from hybrid.convert.architectures import Family
from hybrid.quant.ggml.reader import GGUFFile
from hybrid.quant.ggml.types import FileType

FILE = "model.safetensors"
CHUNKED, FULL = "chunked_attention", "full_attention"
# without the settings that a small model needs and readers do not know
PLAIN = {"attention_chunk_size": ..., "floor_scale": ..., "attn_scale": ..., "max_position_embeddings": 131072}


def family(**change: Any) -> Family:
    config = {"vocab_size": 8, "max_position_embeddings": 512, **CONFIGS["llama4-window"], **change}
    return random_checkpoints.family_for({key: value for key, value in config.items() if value is not ...})


def keys(**change: Any) -> dict[str, Any]:
    return dict(family(**change).keys(FileType.F32))


def test_what_a_published_config_needs_no_key_for() -> None:
    written = keys(**PLAIN, no_rope_layers=[], moe_layers=[1, 3])
    known = {key for key in written if key.startswith(("hybrid.", "attention.")) and "head_count" not in key}
    assert known == {"attention.layer_norm_rms_epsilon", "attention.key_length", "attention.value_length"}
    assert written["interleave_moe_layer_step"] == 2
    assert (written["feed_forward_length"], written["expert_feed_forward_length"]) == (160, 64)
    assert list(family(**PLAIN).notes()) == []


@pytest.mark.parametrize(
    ("change", "written", "note"),
    [
        ({"attention_chunk_size": 64}, {"hybrid.attention.chunk_size": 64}, "beyond 64 tokens its results differ"),
        ({"attention_chunk_size": 9000}, {"hybrid.attention.chunk_size": 9000}, "beyond 8192 tokens"),
        ({"use_qk_norm": False}, {"hybrid.attention.qk_norm": False}, "llama.cpp takes use_qk_norm = true"),
        ({"num_local_experts": 128}, {"hybrid.attention.qk_norm": True}, "llama.cpp takes use_qk_norm = false"),
        ({"num_local_experts": 128, "use_qk_norm": False}, {}, ""),
        ({"attn_scale": 0.2}, {"attention.temperature_scale": 0.2}, "no keys for attn_scale and floor_scale"),
        ({"floor_scale": 5}, {"attention.temperature_length": 5}, "no keys for attn_scale and floor_scale"),
        ({"attn_temperature_tuning": False}, {"attention.temperature_scale": 0.0}, "no keys for attn_scale"),
        (
            {"no_rope_layer_interval": 2},
            {"hybrid.rope.layer_pattern": [True, False, True, False, True]},
            "every layer but each 4th to have RoPE",
        ),
        ({"moe_layers": [0]}, {"interleave_moe_layer_step": 0}, "cannot load this file"),
        ({"moe_layers": [], "num_local_experts": 0, "num_experts_per_tok": 0}, {}, "cannot load this file"),
        ({"attention_bias": True}, {}, "cannot load this file"),
        ({"layer_types": [FULL] * 5}, {"attention.sliding_window": 0}, "every layer but the last to have RoPE"),
        (
            {"layer_types": [FULL, CHUNKED, CHUNKED, CHUNKED, FULL]},
            {"attention.sliding_window_pattern": [False, True, True, True, False]},
            "",
        ),
    ],
)
def test_other_settings(change: dict[str, Any], written: dict[str, Any], note: str) -> None:
    change = {**PLAIN, **change}
    if change.get("layer_types") == [FULL] * 5:
        change["no_rope_layers"] = [1] * 5
    found = keys(**change)
    assert {key: found[key] for key in written} == written
    notes = list(family(**change).notes())
    assert any(note in one for one in notes) if note else notes == []


@pytest.mark.parametrize("before", ["language_model.model.", "model.language_model."])
def test_the_text_of_a_model_with_pictures(before: str, tmp_path: Path, data_dir: Path) -> None:
    """Its tensors equal the text model's; the other parts are left out by name."""
    plain = random_checkpoints.write(CONFIGS["llama4"], tmp_path / "plain")
    folder = tmp_path / "pictures"
    folder.mkdir()
    inside = before.startswith("language")
    tensors = {
        name.replace("lm_head.", "language_model.lm_head.")
        if inside and name.startswith("lm_head.")
        else name.replace("model.", before, 1): values
        for name, values in load_file(plain / FILE).items()
    }
    towers = [
        ("" if inside else "model.") + name for name in ("vision_model.class_embedding", "multi_modal_projector.w")
    ]
    save_file({**tensors, **{tower: np.ones((3, 3), np.float32) for tower in towers}}, folder / FILE)
    text = json.loads((plain / "config.json").read_text())
    del text["architectures"]
    outer = {"architectures": ["Llama4ForConditionalGeneration"], "model_type": "llama4", "text_config": text}
    (folder / "config.json").write_text(json.dumps(outer))
    tokenizer = data_dir / "checkpoints" / "mamba-bf16"
    convert(plain, tmp_path / "plain.gguf", tokenizer=tokenizer)
    report = convert(folder, tmp_path / "pictures.gguf", tokenizer=tokenizer)
    assert any("left out: no part of the language model itself" in note for note in report.notes)
    verify(folder, tmp_path / "pictures.gguf")
    with GGUFFile.open(tmp_path / "plain.gguf") as a, GGUFFile.open(tmp_path / "pictures.gguf") as b:
        assert a.tensors.keys() == b.tensors.keys()
        assert all(a.raw(name).tobytes() == b.raw(name).tobytes() for name in a.tensors)
