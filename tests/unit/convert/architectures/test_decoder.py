"""Plain transformers other than Llama: names in their checkpoints, and refused or noted settings."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import random_checkpoints
from random_checkpoints import CONFIGS
from safetensors.numpy import load_file, save_file

from hybrid.convert import convert
from hybrid.convert.architectures.openelm import _divisible
from hybrid.infer import LoadedModel
from hybrid.quant.ggml.errors import HybridError, UsageError
from hybrid.quant.ggml.reader import GGUFFile


@pytest.fixture
def converted(data_dir: Path, tmp_path: Path) -> Callable[..., GGUFFile]:
    """converted(name, tensors=..., **changes to the config) -> the file; `tensors` are changed in place before."""

    def make(name: str, change: Callable[[dict[str, np.ndarray]], object] | None = None, **more: Any) -> GGUFFile:
        folder = random_checkpoints.write({**CONFIGS[name], **more}, tmp_path / name)
        if change:
            tensors = load_file(folder / "model.safetensors")
            change(tensors)
            save_file(tensors, folder / "model.safetensors")
        path = tmp_path / f"{name}.gguf"
        convert(folder, path, outtype="f32", tokenizer=data_dir / "checkpoints" / "mamba-bf16")
        return GGUFFile.open(path)

    return make


def own_keys(file: GGUFFile) -> dict[str, Any]:
    prefix = f"{file.get('general.architecture')}."
    own = {key.removeprefix(prefix): value for key, value in file.metadata.items() if key.startswith(prefix)}
    return {key: value.tolist() if hasattr(value, "tolist") else value for key, value in own.items()}


def test_openelm(converted: Callable[..., GGUFFile]) -> None:
    """llama.cpp's converter writes these keys; the halves of proj_1 become two tensors."""
    whole: dict[int, np.ndarray] = {}

    def join(tensors: dict[str, np.ndarray]) -> None:
        for i in range(3):
            p = f"transformer.layers.{i}.ffn.proj_1."
            whole[i] = np.concatenate([tensors.pop(p + "gate"), tensors.pop(p + "up")])
            tensors[p + "weight"] = whole[i]

    with converted("openelm", join) as file:
        assert own_keys(file) == {
            "block_count": 3,
            "context_length": 512,
            "embedding_length": 96,
            "feed_forward_length": [64, 128, 192],
            "attention.head_count": [3, 4, 6],
            "attention.head_count_kv": [1, 2, 2],
            "rope.freq_base": 10000.0,
            "attention.layer_norm_rms_epsilon": np.float32(1e-6),
            "rope.dimension_count": 24,
            "attention.key_length": 24,
            "attention.value_length": 24,
        }
        for i, n_ff in enumerate((64, 128, 192)):
            np.testing.assert_array_equal(file.f32(f"blk.{i}.ffn_gate.weight"), whole[i][:n_ff])
            np.testing.assert_array_equal(file.f32(f"blk.{i}.ffn_up.weight"), whole[i][n_ff:])
            assert file.info(f"blk.{i}.attn_qkv.weight").shape == ((3 + 2, 4 + 4, 6 + 4)[i] * 24, 96)


def test_openelm_rounds_its_feed_forward_sizes() -> None:
    """apple/OpenELM-270M: 1280 times 0.5 to 4.0 in 16 steps, multiples of 256."""
    assert [_divisible(round(0.5 + 3.5 * i / 15, 2) * 1280, 256) for i in range(16)] == [
        768,
        1024,
        1280,
        1536,
        1792,
        2048,
        2560,
        2816,
        3072,
        3328,
        3584,
        3840,
        4352,
        4608,
        4864,
        5120,
    ]


def test_gpt2_with_its_older_names(converted: Callable[..., GGUFFile]) -> None:
    """Its matrices are transposed; the checkpoint's masks are no tensors of the model."""
    source: dict[str, np.ndarray] = {}

    def rename(tensors: dict[str, np.ndarray]) -> None:
        source.update(tensors)
        tensors.clear()
        tensors.update({f"transformer.{name}": value for name, value in source.items()})
        tensors["transformer.h.0.attn.bias"] = np.tril(np.ones((1, 1, 8, 8), np.float32))
        tensors["transformer.h.0.attn.masked_bias"] = np.float32([-1e4])
        tensors["lm_head.weight"] = source["wte.weight"]

    with converted("gpt2", rename) as file:
        assert own_keys(file) == {
            "block_count": 2,
            "context_length": 512,
            "embedding_length": 96,
            "feed_forward_length": 384,
            "attention.head_count": 6,
            "attention.layer_norm_epsilon": np.float32(1e-5),
        }
        assert "output.weight" not in file.tensors
        np.testing.assert_array_equal(file.f32("blk.1.attn_qkv.weight"), source["h.1.attn.c_attn.weight"].T)
        np.testing.assert_array_equal(file.f32("blk.0.ffn_down.weight"), source["h.0.mlp.c_proj.weight"].T)
        np.testing.assert_array_equal(file.f32("blk.0.ffn_up.bias"), source["h.0.mlp.c_fc.bias"])
        assert file.info("position_embd.weight").shape == (512, 96)
        path = file.path
    with pytest.raises(UsageError, match=r"a context of 513 tokens: gpt2\.gguf has 512 positions"):
        LoadedModel.load(path, n_ctx=513)


def test_mistral_is_a_llama(converted: Callable[..., GGUFFile]) -> None:
    with converted("mistral") as file:
        assert file.get("general.architecture") == "llama"
        keys = own_keys(file)
    assert (keys["attention.key_length"], keys["rope.dimension_count"], keys["rope.freq_base"]) == (24, 24, 1e6)
    assert "attention.sliding_window" not in keys and "hybrid.attention.sliding_window" not in file.metadata


@pytest.mark.parametrize(
    ("name", "architecture", "tied"),
    [
        ("qwen3", "Qwen3ForCausalLM", True),  # Qwen3-Embedding
        ("qwen3", "Qwen3Model", False),
        ("qwen2", "Qwen2Model", True),
        ("mistral", "MistralModel", False),  # E5-Mistral
    ],
)
def test_embedding_models_are_saved_without_head_and_prefix(
    name: str, architecture: str, tied: bool, converted: Callable[..., GGUFFile]
) -> None:
    def strip(tensors: dict[str, np.ndarray]) -> None:
        tensors.pop("lm_head.weight", None)
        for key in list(tensors):
            tensors[key.removeprefix("model.")] = tensors.pop(key)

    whole = converted(name, tie_word_embeddings=True)
    expected = {key: whole.raw(key).tobytes() for key in whole.tensors if key != "output.weight"}
    whole.close()
    with converted(name, strip, architectures=[architecture], tie_word_embeddings=tied) as file:
        assert {key: file.raw(key).tobytes() for key in file.tensors} == expected


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        ("olmoe", {"clip_qkv": -8.0}, "clip_qkv = -8.0 .*expected a positive number"),
        ("olmoe", {"num_experts_per_tok": 8}, "num_experts_per_tok"),
        ("openelm", {"num_kv_heads": [1, 3, 2]}, "num_kv_heads .* in every layer a divisor of num_query_heads"),
        ("openelm", {"num_query_heads": [3, 4]}, "expected 3 integers of at most 65536, one for every layer"),
        ("openelm", {"ffn_multipliers": [0.5, -1, 2]}, "expected 3 numbers of at most 64"),
        ("openelm", {"ffn_multipliers": None}, "ffn_multipliers"),
        ("openelm", {"share_input_output_layers": False}, "share_input_output_layers"),
        ("starcoder2", {"hidden_act": "relu"}, "hidden_act"),
        ("phi2", {"qk_layernorm": True}, "qk_layernorm"),
        ("phi2", {"partial_rotary_factor": 0.01}, "a positive even number .* it gives 0"),
        ("gpt2", {"n_head": 5}, "n_head = 5 .* expected a divisor of n_embd = 96"),
        ("gpt2", {"scale_attn_by_inverse_layer_idx": True}, "scale_attn_by_inverse_layer_idx"),
    ],
)
def test_what_is_refused(name: str, change: dict[str, Any], message: str, tmp_path: Path) -> None:
    folder = random_checkpoints.write(CONFIGS[name], tmp_path / name)
    config = {"vocab_size": 2023, "max_position_embeddings": 512, **CONFIGS[name], **change}
    (folder / "config.json").write_text(json.dumps(config))
    with pytest.raises(HybridError, match=message) as error:
        convert(folder, tmp_path / "o.gguf")
    assert "\n" not in str(error.value)
    assert not (tmp_path / "o.gguf").exists()
