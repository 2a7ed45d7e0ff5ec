"""Conversion of Hymba's tensors and settings."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import random_checkpoints
from random_checkpoints import CONFIGS
from safetensors.numpy import load_file, save_file

from hybrid.convert.convert import convert
from hybrid.quant.ggml.reader import GGUFFile
from hybrid.quant.ggml.types import FileType, GGMLType


def keys(**change: Any) -> dict[str, Any]:
    config = {"vocab_size": 8, "max_position_embeddings": 512, **CONFIGS["hymba"], **change}
    family = random_checkpoints.family_for({name: value for name, value in config.items() if value is not ...})
    return dict(family.keys(FileType.F32))


def test_layers() -> None:
    got = keys()
    assert got["attention.kv_distance"] == [0, 0, 1, 2, 0, 0]
    assert got["attention.sliding_window_pattern"] == [False, True, True, True, True, False]
    assert (got["attention.sliding_window"], got["prefix_length"]) == (12, 128)
    assert (got["attention.key_length"], got["attention.value_length"], got["ssm.inner_size"]) == (20, 40, 240)


def test_layers_by_a_period() -> None:
    got = keys(kv_reuse_group=None, kv_reuse_every_i_layer=3, global_attn_idx=[])
    assert got["attention.kv_distance"] == [0, 1, 2, 0, 1, 2]
    assert keys(kv_reuse_group=None)["attention.kv_distance"] == [0] * 6


def test_a_layer_of_a_group_may_begin_another() -> None:
    assert keys(kv_reuse_group=[[1, 2], [2, 4]])["attention.kv_distance"] == [0, 0, 1, 0, 3, 0]


@pytest.mark.parametrize(("window", "said"), [(None, 0), (..., 1025), (7, 8)])
def test_windows(window: Any, said: int) -> None:
    got = keys(sliding_window=window)
    assert got.get("attention.sliding_window", 0) == said and ("attention.sliding_window_pattern" in got) == (said > 0)


def test_stretched_rotation() -> None:
    assert keys(rope_type="default", rope_theta=500.0)["rope.freq_base"] == 500.0
    # the published model: 10000 times 7 to the power 64 / 62
    published = {"hidden_size": 384, "max_position_embeddings": 8192, "orig_max_position_embeddings": ...}
    assert keys(**published)["rope.freq_base"] == pytest.approx(10000 * 7 ** (64 / 62), rel=1e-12)


def test_the_mixers_parts_are_one_matrix(tmp_path: Path, data_dir: Path) -> None:
    """As published: rows of queries, keys, values, the scan's input and its gate; some layers have no keys."""
    apart = random_checkpoints.write(CONFIGS["hymba"], tmp_path / "apart")
    tensors = load_file(apart / "model.safetensors")
    for i in range(6):
        stem = f"model.layers.{i}.mamba.in_proj."
        parts = ("q", "scan") if i in (2, 3) else ("q", "k", "v", "scan")
        tensors[stem + "weight"] = np.concatenate([tensors.pop(f"{stem}{part}.weight") for part in parts])
    whole = tmp_path / "whole"
    whole.mkdir()
    save_file(tensors, whole / "model.safetensors")
    (whole / "config.json").write_text((apart / "config.json").read_text())
    tokenizer = data_dir / "checkpoints" / "mamba-bf16"
    convert(whole, tmp_path / "whole.gguf", outtype="q8_0", tokenizer=tokenizer)
    convert(apart, tmp_path / "apart.gguf", outtype="q8_0", tokenizer=tokenizer)
    with GGUFFile.open(tmp_path / "whole.gguf") as got, GGUFFile.open(tmp_path / "apart.gguf") as expected:
        assert got.tensors.keys() == expected.tensors.keys()
        assert all(np.array_equal(got.raw(name), expected.raw(name)) for name in got.tensors)
        assert got.info("prefix_embd.weight").type is GGMLType.F32
        assert got.info("blk.0.ssm_in.weight").shape == (480, 120) and "blk.2.attn_k.weight" not in got.tensors
