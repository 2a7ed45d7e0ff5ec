"""Settings of Mamba layers that published models do not use, and the tensors and keys made of them."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import random_checkpoints
from random_checkpoints import CONFIGS

from hybrid.convert import convert
from hybrid.convert.architectures.family import Row
from hybrid.quant import quantize
from hybrid.quant.ggml.reader import GGUFFile
from hybrid.quant.ggml.types import FileType, GGMLType


def rows(name: str, **change: Any) -> dict[str, Row]:
    return {row.target: row for row in family(name, **change).rows()}


def keys(name: str, **change: Any) -> dict[str, Any]:
    return dict(family(name, **change).keys(0))


def family(name: str, **change: Any) -> Any:
    return random_checkpoints.family_for({"vocab_size": 8, "max_position_embeddings": 64, **CONFIGS[name], **change})


@pytest.mark.parametrize(
    ("name", "key", "channels"),
    [
        ("mamba-biased", "use_conv_bias", 144),
        ("falcon-mamba-biased", "use_conv_bias", 112),
        ("mamba2-biased", "use_conv_bias", 210),
        ("jamba-biased", "mamba_conv_bias", 144),
        ("falcon-h1-biased", "mamba_conv_bias", 186),
        ("zamba-biased", "mamba_conv_bias", 160),
        ("bamba-biased", "mamba_conv_bias", 234),
        ("granite-hybrid-biased", "mamba_conv_bias", 234),
    ],
)
def test_a_convolution_without_bias_gets_zeros(name: str, key: str, channels: int) -> None:
    """llama.cpp does not load a model without the tensor."""
    bias = rows(name, **{key: False})["blk.0.ssm_conv1d.bias"]
    assert bias.sources == ()
    np.testing.assert_array_equal(bias.constant, np.zeros(channels, np.float32))
    assert rows(name, **{key: True})["blk.0.ssm_conv1d.bias"].sources != ()


def test_the_convolution_of_zamba2_has_a_bias_whatever_the_config_says() -> None:
    bias = rows("zamba2-biased", use_conv_bias=False)["blk.0.ssm_conv1d.bias"]
    assert bias.sources == ("model.layers.0.mamba.conv1d.bias",)


BOTH = ("ssm_in", "ssm_out")


@pytest.mark.parametrize(
    ("name", "key", "layer", "biased"),
    [
        ("mamba-biased", "use_bias", 1, BOTH),
        ("falcon-mamba-biased", "use_bias", 1, BOTH),
        ("mamba2-biased", "use_bias", 1, BOTH),
        ("jamba-biased", "mamba_proj_bias", 0, BOTH),
        ("zamba-biased", "mamba_proj_bias", 1, BOTH),
        ("bamba-biased", "mamba_proj_bias", 0, BOTH),
        ("granite-hybrid-biased", "mamba_proj_bias", 0, BOTH),
        ("falcon-h1-biased", "mamba_proj_bias", 0, ("ssm_in",)),
        ("falcon-h1-biased", "projectors_bias", 0, ("ssm_out",)),
        ("falcon-h1-biased", "attention_bias", 0, ("attn_q", "attn_k", "attn_v", "attn_output")),
        ("falcon-h1-biased", "mlp_bias", 0, ("ffn_gate", "ffn_up", "ffn_down")),
        ("bamba-biased", "attention_bias", 1, ("attn_q", "attn_k", "attn_v", "attn_output")),
        ("bamba-biased", "mlp_bias", 0, ("ffn_gate", "ffn_up", "ffn_down")),
        ("granite-hybrid-biased", "attention_bias", 1, ("attn_q", "attn_k", "attn_v", "attn_output")),
        ("zamba2-biased", "add_bias_linear", 1, (*BOTH, "ffn_up", "ffn_down")),
    ],
)
def test_biases(name: str, key: str, layer: int, biased: tuple[str, ...]) -> None:
    with_them, without = rows(name, **{key: True}), rows(name, **{key: False})
    more = {target for target in with_them if target.startswith(f"blk.{layer}.")} - set(without)
    assert more == {f"blk.{layer}.{part}.bias" for part in biased}
    for target in more:
        assert with_them[target].shape == with_them[target.replace("bias", "weight")].shape[:1]


def test_multipliers_of_falcon_h1_reach_the_biases_behind_them_alone() -> None:
    """A projection's input is multiplied before the projection's bias is added."""
    by_target, ones = rows("falcon-h1-biased"), {}
    for target, row in by_target.items():
        if target.startswith("blk.0.") and target.endswith(".bias") and row.sources:
            x = np.ones((row.shape[0], 1), np.float32)
            ones[target[6:]] = (row.transform.apply(x, 0) if row.transform else x)[:, 0]
    d, groups = 144, 3 * 7
    parts = np.repeat([0.8, 1.1, 0.7, 0.6, 1.3], [d, d, groups, groups, 9])
    np.testing.assert_allclose(ones["ssm_in.bias"], parts, rtol=1e-6)
    expected = {
        "ssm_out": 0.7,
        "attn_q": 1.0,
        "attn_k": 0.6,
        "attn_v": 1.0,
        "attn_output": 0.9,
        "ffn_gate": 0.9,
        "ffn_up": 1.0,
        "ffn_down": 0.8,
    }
    for part, factor in expected.items():
        np.testing.assert_allclose(ones[part + ".bias"], factor, rtol=1e-6)


@pytest.mark.parametrize("name", ["mamba2-biased", "falcon-h1-biased", "bamba-biased", "granite-hybrid-biased"])
@pytest.mark.parametrize(
    ("limits", "expected"),
    [
        ([0.001, 0.1], {"ssm.time_step_min": 0.001, "ssm.time_step_max": 0.1}),
        ([0.001, {"__float__": "Infinity"}], {"ssm.time_step_min": 0.001}),
        ([0.0, float("inf")], {}),
        ([-1.0, 2], {"ssm.time_step_max": 2.0}),  # step sizes are always positive
        (None, {}),
    ],
)
def test_limits_of_the_step_size(name: str, limits: Any, expected: dict[str, float]) -> None:
    written = keys(name, time_step_limit=limits)
    assert {key: value for key, value in written.items() if "time_step_m" in key} == expected


def test_the_least_step_size_of_zamba2() -> None:
    """Its model reads time_step_min, which has a default, and not time_step_limit."""
    assert keys("zamba2-biased")["ssm.time_step_min"] == 0.12
    assert keys("zamba2")["ssm.time_step_min"] == 0.001
    written = keys("zamba2", time_step_limit=[0.2, 0.3], time_step_min=0.0)
    assert not any("time_step_m" in key for key in written)


def test_the_norm_behind_the_scan_of_zamba2_has_an_epsilon_of_its_own() -> None:
    written = keys("zamba2", rms_norm_eps=1e-6)
    assert (written["attention.layer_norm_rms_epsilon"], written["ssm.norm_rms_epsilon"]) == (1e-6, 1e-5)
    assert "ssm.norm_rms_epsilon" not in keys("zamba2")


def test_the_norm_before_the_gate_needs_a_norm() -> None:
    assert keys("falcon-h1-biased")["ssm.norm_before_gate"] is True
    assert "ssm.norm_before_gate" not in keys("falcon-h1-biased", mamba_norm_before_gate=False)
    assert "ssm.norm_before_gate" not in keys("falcon-h1-biased", mamba_rms_norm=False)
    assert (
        keys("falcon-h1-biased", mamba_norm_before_gate=None)["ssm.norm_before_gate"] is True
    )  # transformers' default


def test_granite_4_has_positions_where_the_config_asks_for_them() -> None:
    assert keys("granite-4-without-positions")["rope.scaling.finetuned"] is False
    assert keys("granite-4-attention")["rope.scaling.finetuned"] is True
    assert keys("granitemoe")["rope.scaling.finetuned"] is True


def test_what_a_config_of_mamba2_does_not_say_is_as_in_transformers() -> None:
    """For configs without model_type, as in state-spaces' own code."""
    change = {"n_groups": None, "tie_word_embeddings": None, "num_heads": 16, "hidden_size": 128}
    assert (family("mamba2-biased", **change).ssm.n_group, family("mamba2-biased", **change).tied) == (8, False)
    change |= {"model_type": None, "norm_before_gate": None}
    assert (family("mamba2-biased", **change).ssm.n_group, family("mamba2-biased", **change).tied) == (1, True)


@pytest.mark.parametrize("name", ["mamba-biased", "falcon-h1-biased", "zamba2-biased"])
def test_biases_stay_f32(name: str, tmp_path: Path, data_dir: Path) -> None:
    """In every type of conversion and quantization."""
    folder = random_checkpoints.write(CONFIGS[name], tmp_path / "model")
    convert(folder, tmp_path / "o.gguf", outtype="q8_0", tokenizer=data_dir / "checkpoints" / "mamba-bf16")
    quantize(tmp_path / "o.gguf", tmp_path / "q.gguf", FileType.Q4_K_M, allow_requantize=True, n_threads=1)
    for path in (tmp_path / "o.gguf", tmp_path / "q.gguf"):
        with GGUFFile.open(path) as file:
            biases = {tensor: info.type for tensor, info in file.tensors.items() if tensor.endswith(".bias")}
            assert "blk.0.ssm_in.bias" in biases and "blk.0.ssm_conv1d.bias" in biases
            assert set(biases.values()) == {GGMLType.F32}
