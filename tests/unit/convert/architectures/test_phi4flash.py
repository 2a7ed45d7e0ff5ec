"""Conversion of Phi-4-mini-flash's tensors and settings."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import random_checkpoints
from random_checkpoints import CONFIGS
from safetensors.numpy import load_file, save_file

from hybrid.convert.convert import convert
from hybrid.quant.ggml.reader import GGUFFile
from hybrid.quant.ggml.types import FileType


def keys(**change: Any) -> dict[str, Any]:
    config = {"vocab_size": 8, "max_position_embeddings": 512, **CONFIGS["phi4flash"], **change}
    family = random_checkpoints.family_for({name: value for name, value in config.items() if value is not ...})
    return dict(family.keys(FileType.F32))


def test_layers() -> None:
    got = keys()
    assert got["attention.head_count_kv"] == [0, 2, 0, 2, 0, 2, 0, 2]
    assert got["attention.sliding_window_pattern"] == [False, True, False, True, False, False, False, False]
    assert (got["attention.sliding_window"], got["attention.shared_kv_layers"]) == (11, 2)
    assert got["attention.layer_norm_epsilon"] == 3e-4 and got["attention.layer_norm_rms_epsilon"] == 1e-5


@pytest.mark.parametrize(
    ("change", "window"), [({}, 11), ({"sliding_window": ...}, 2047), ({"sliding_window": None}, 0)]
)
def test_windows(change: dict[str, Any], window: int) -> None:
    got = keys(**change)
    assert got["attention.sliding_window"] == window
    assert any(got["attention.sliding_window_pattern"]) == (window > 0)


def test_stated_layer_types() -> None:
    """layer_types may repeat what its own code derives from the other keys."""
    kinds = ["sliding_attention" if i in (1, 3) else "full_attention" for i in range(8)]
    assert keys(layer_types=kinds) == keys()


def test_rank_of_the_step() -> None:
    assert keys(mamba_dt_rank="auto")["ssm.time_step_rank"] == 9 == keys(mamba_dt_rank=...)["ssm.time_step_rank"]


def test_queries_keys_and_values_are_one_matrix(tmp_path: Path, data_dir: Path) -> None:
    """As published: rows of queries, then keys, then values; the last layers have only queries."""
    apart = random_checkpoints.write(CONFIGS["phi4flash"], tmp_path / "apart")
    tensors = load_file(apart / "model.safetensors")
    for i in (1, 3, 5):
        for kind in ("weight", "bias"):
            stem = f"model.layers.{i}.attn.Wqkv."
            tensors[stem + kind] = np.concatenate([tensors.pop(f"{stem}{part}.{kind}") for part in "qkv"])
    assert tensors["model.layers.7.attn.Wqkv.weight"].shape == (144, 144)
    whole = tmp_path / "whole"
    whole.mkdir()
    save_file(tensors, whole / "model.safetensors")
    (whole / "config.json").write_text((apart / "config.json").read_text())
    convert(whole, tmp_path / "whole.gguf", outtype="f32", tokenizer=data_dir / "checkpoints" / "mamba-bf16")
    with GGUFFile.open(tmp_path / "whole.gguf") as gguf:
        qkv = tensors["model.layers.3.attn.Wqkv.weight"]
        for part, rows in (("q", qkv[:144]), ("k", qkv[144:192]), ("v", qkv[192:])):
            np.testing.assert_array_equal(gguf.f32(f"blk.3.attn_{part}.weight"), rows)
        bias = tensors["model.layers.3.attn.Wqkv.bias"]
        np.testing.assert_array_equal(gguf.f32("blk.3.attn_v.bias"), bias[192:])
        assert "blk.7.attn_k.weight" not in gguf.tensors
        lambdas = [tensors[f"model.layers.7.attn.inner_cross_attn.lambda_{name}"] for name in ("q1", "k1", "q2", "k2")]
        np.testing.assert_array_equal(gguf.f32("blk.7.attn_lambda"), np.stack(lambdas))
