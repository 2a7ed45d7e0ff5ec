"""OLMo Hybrid in its released form and as transformers writes it."""

import json
from pathlib import Path

import numpy as np
import random_checkpoints
from random_checkpoints import CONFIGS
from reference.olmo_hybrid import joined
from safetensors.numpy import save_file

from hybrid.convert import convert
from hybrid.quant.ggml.reader import GGUFFile

N_KEY, N_VALUE = 3 * 24, 6 * 20  # rows of queries and of keys, and of values


def checkpoint(folder: Path, *, released: bool) -> Path:
    """Released models have separate taps, and other names for the norms of delta-rule layers."""
    config = {"vocab_size": random_checkpoints.N_VOCAB, "max_position_embeddings": 64, **CONFIGS["olmo-hybrid"]}
    by_name = random_checkpoints.tensors(config)
    written = {name: x for name, x in by_name.items() if not name.rpartition(".")[2].isdecimal()}
    for i in (0, 2, 3):
        p = f"model.layers.{i}."
        qkv, taps = (joined(by_name, f"{p}linear_attn.{name}.weight") for name in ("qkv", "conv1d"))
        for part, rows in zip("qkv", np.split(qkv, [N_KEY, 2 * N_KEY]), strict=True):
            written[f"{p}linear_attn.{part}_proj.weight"] = rows
        if not released:
            written[p + "linear_attn.conv1d.weight"] = taps
            continue
        for part, rows in zip("qkv", np.split(taps, [N_KEY, 2 * N_KEY]), strict=True):
            written[f"{p}linear_attn.{part}_conv1d.weight"] = rows
        written[p + "attention_layer_norm.weight"] = written.pop(p + "input_layernorm.weight")
        written[p + "feedforward_layer_norm.weight"] = written.pop(p + "post_attention_layernorm.weight")
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(config))
    # in the file's order
    save_file({name: np.ascontiguousarray(x) for name, x in written.items()}, folder / "model.safetensors")
    return folder


def test_both_kinds_of_names(data_dir: Path, tmp_path: Path) -> None:
    files = []
    for released in (False, True):
        source = checkpoint(tmp_path / str(released), released=released)
        convert(source, tmp_path / f"{released}.gguf", tokenizer=data_dir / "checkpoints" / "mamba-bf16")
        files.append(GGUFFile.open(tmp_path / f"{released}.gguf"))
    one, other = files
    assert one.tensors.keys() == other.tensors.keys()
    for name in one.tensors:
        assert one.raw(name).tobytes() == other.raw(name).tobytes(), name
    assert one.info("blk.0.attn_qkv.weight").shape == (2 * N_KEY + N_VALUE, 96)
    assert one.get("olmo-hybrid.ssm.beta_scale") == 2.0
    assert one.get("olmo-hybrid.rope.dimension_count") == 0
