"""PEFT adapters to GGUF: names, factors, and refused adapters. tests/property/test_lora.py checks logits."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import peft_adapters
import pytest
import random_checkpoints
from random_checkpoints import CONFIGS
from safetensors.numpy import load_file, save_file

from hybrid.convert import convert_lora
from hybrid.quant.ggml.adapter import Adapter
from hybrid.quant.ggml.errors import CheckpointError, HybridError, UnsupportedError, UsageError
from hybrid.quant.ggml.reader import GGUFFile
from hybrid.quant.ggml.types import GGMLType

pytestmark = pytest.mark.exhaustive

Q, DOWN = (f"model.layers.1.{name}.weight" for name in ("self_attn.q_proj", "mlp.down_proj"))


@pytest.fixture
def base(tmp_path: Path) -> Path:
    """A model's config alone, which suffices."""
    folder = tmp_path / "base"
    folder.mkdir()
    config = {"vocab_size": 300, "max_position_embeddings": 64, **CONFIGS["llama-biased"]}
    (folder / "config.json").write_text(json.dumps(config))
    return folder


@pytest.fixture
def thin() -> dict[str, tuple[np.ndarray, np.ndarray]]:
    rng = np.random.default_rng(2)
    shapes = {Q: (96, 96), DOWN: (96, 160)}
    return {
        name: (rng.standard_normal((4, n)).astype(np.float32), rng.standard_normal((rows, 4)).astype(np.float32))
        for name, (rows, n) in shapes.items()
    }


def read(path: Path) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    with GGUFFile.open(path) as file:
        return dict(file.metadata), {name: np.array(file.f32(name)) for name in file.tensors}


def test_keys_and_tensors(base: Path, thin: dict, tmp_path: Path) -> None:
    report = convert_lora(peft_adapters.write(tmp_path / "a", thin, 6), tmp_path / "a.gguf", base=base)
    assert (report.n_matrices, report.ranks, report.alpha, report.architecture) == (2, (4,), 6.0, "llama")
    metadata, tensors = read(tmp_path / "a.gguf")
    assert metadata["general.architecture"] == "llama" and metadata["general.type"] == "adapter"
    assert metadata["adapter.type"] == "lora" and metadata["adapter.lora.alpha"] == 6.0
    assert metadata["general.base_model.0.name"] == "base" and not any("tokenizer" in key for key in metadata)
    expected = [f"blk.1.{name}.weight.lora_{half}" for name in ("attn_q", "ffn_down") for half in "ab"]
    assert list(tensors) == expected
    np.testing.assert_array_equal(tensors[expected[0]], thin[Q][0])
    np.testing.assert_array_equal(tensors[expected[2]], thin[DOWN][0])
    np.testing.assert_array_equal(tensors[expected[3]], thin[DOWN][1])
    # heads of 32: rows j and j + 16 become neighbours
    turned = thin[Q][1].reshape(3, 2, 16, 4).swapaxes(1, 2).reshape(96, 4)
    np.testing.assert_array_equal(tensors[expected[1]], turned)


def test_an_adapter_of_a_text_model_within_another_class(base: Path, thin: dict, tmp_path: Path) -> None:
    config = {
        "architectures": ["LlavaForConditionalGeneration"],
        "text_config": json.loads((base / "config.json").read_text()),
    }
    config["text_config"]["model_type"] = "llama"
    convert_lora(peft_adapters.write(tmp_path / "a", thin, 6), tmp_path / "a.gguf", base=base)
    (base / "config.json").write_text(json.dumps(config))
    for i, prefix in enumerate(("language_model.model.", "model.language_model.")):
        named = {name.replace("model.", prefix, 1): pair for name, pair in thin.items()}
        convert_lora(peft_adapters.write(tmp_path / "a", named, 6), tmp_path / f"{i}.gguf", base=base)
        assert (tmp_path / f"{i}.gguf").read_bytes() == (tmp_path / "a.gguf").read_bytes()


def test_an_activated_adapter(base: Path, thin: dict, tmp_path: Path) -> None:
    settings = {"alora_invocation_tokens": [5, 7, 5], "invocation_string": "<x>"}
    convert_lora(peft_adapters.write(tmp_path / "a", thin, 6, **settings), tmp_path / "a.gguf", base=base)
    assert read(tmp_path / "a.gguf")[0]["adapter.alora.invocation_tokens"].tolist() == [5, 7, 5]
    assert Adapter.open((tmp_path / "a.gguf", 1.0), "llama").invocation == (5, 7, 5)


@pytest.mark.parametrize("outtype", ["f16", "bf16"])
def test_types(outtype: str, base: Path, thin: dict, tmp_path: Path) -> None:
    report = convert_lora(peft_adapters.write(tmp_path / "a", thin, 6), tmp_path, base=base, outtype=outtype)
    assert report.output == tmp_path / f"a-lora-{outtype.upper()}.gguf"
    with GGUFFile.open(report.output) as file:
        assert {t.type for t in file.tensors.values()} == {GGMLType[outtype.upper()]}


def test_factors_of_their_own(base: Path, thin: dict, tmp_path: Path) -> None:
    """alpha_pattern, rank_pattern and rsLoRA: a reader's factor is the one that PEFT means."""
    a, b = thin[DOWN]
    mixed = {Q: thin[Q], DOWN: (a[:2], b[:, :2])}
    cases: list[tuple[dict[str, Any], float, float]] = [
        ({"rank_pattern": {"down_proj": 2}}, 6 / 4, 6 / 2),
        ({"rank_pattern": {"down_proj": 2}, "alpha_pattern": {r"layers\.1\.mlp\.down_proj": 9}}, 6 / 4, 9 / 2),
        ({"rank_pattern": {"down_proj": 2}, "use_rslora": True}, 6 / 4**0.5, 6 / 2**0.5),
    ]
    for settings, of_q, of_down in cases:
        convert_lora(peft_adapters.write(tmp_path / "a", mixed, 6, **settings), tmp_path / "a.gguf", base=base)
        metadata, tensors = read(tmp_path / "a.gguf")
        for name, (_, wide), meant in (("attn_q", mixed[Q], of_q), ("ffn_down", mixed[DOWN], of_down)):
            got = tensors[f"blk.1.{name}.weight.lora_b"]
            factor = metadata["adapter.lora.alpha"] / got.shape[1]
            assert np.abs(got).sum() * factor == pytest.approx(np.abs(wide).sum() * meant, rel=1e-6), settings


def test_experts_without_an_adapter_get_zeros(tmp_path: Path) -> None:
    """Different ranks are padded to be equal, which changes no product."""
    folder = random_checkpoints.write(CONFIGS["qwen3moe"], tmp_path / "base")
    tensors = random_checkpoints.tensors(json.loads((folder / "config.json").read_text()))
    names = [f"model.layers.0.mlp.experts.{e}.up_proj.weight" for e in (1, 3)]
    thin = {name: pair for name, pair in peft_adapters.factors(tensors).items() if name in names}
    thin[names[1]] = (thin[names[1]][0][:2], thin[names[1]][1][:, :2])
    source = peft_adapters.write(tmp_path / "a", thin, 6, r=3, rank_pattern={r"experts\.3\.up_proj": 2})
    convert_lora(source, tmp_path / "a.gguf", base=folder)
    _, got = read(tmp_path / "a.gguf")
    a, b = (got[f"blk.0.ffn_up_exps.weight.lora_{half}"] for half in "ab")
    assert a.shape == (5, 3, 96) and b.shape == (5, 64, 3)
    for e in range(5):
        want = np.zeros((64, 96))
        if e in (1, 3):
            one = thin[names[e // 2]]
            want = 6 / len(one[0]) * one[1].astype(np.float64) @ one[0]
        np.testing.assert_allclose(6 / 3 * b[e].astype(np.float64) @ a[e], want, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"peft_type": "IA3"}, r'adapter_config\.json: peft_type = "IA3" is not supported, only "LORA" is'),
        ({"use_dora": True}, "use_dora = true is not supported"),
        ({"bias": "all"}, 'bias = "all" is not supported'),
        ({"fan_in_fan_out": True}, "fan_in_fan_out = true is not supported"),
        ({"modules_to_save": ["embed_tokens"]}, r"modules_to_save = \[\"embed_tokens\"\] is not supported"),
        ({"alora_invocation_tokens": [1, -2]}, r"alora_invocation_tokens = \[1, -2\], expected a list of tokens"),
        ({"alora_invocation_tokens": "<x>"}, "alora_invocation_tokens = <x>, expected a list of tokens"),
        ({"alora_invocation_string": "<x>"}, "alora_invocation_string is a text, expected alora_invocation_tokens"),
        ({"r": 8}, r"mlp\.down_proj has rank 4, adapter_config\.json says 8"),
        ({"lora_alpha": -1}, "lora_alpha = -1"),
        ({"alpha_pattern": {"q_proj": "much"}}, "q_proj = much, expected a positive number"),
        ({"base_model_name_or_path": "org/model"}, "org/model by its config, is not here. Give its folder"),
    ],
)
def test_settings_that_are_refused(settings: dict[str, Any], says: str, base: Path, thin: dict, tmp_path: Path) -> None:
    folder = peft_adapters.write(tmp_path / "a", thin, 6, **settings)
    before = set(tmp_path.rglob("*"))
    with pytest.raises(HybridError, match=says):
        convert_lora(folder, tmp_path / "a.gguf", base=None if "base_model_name_or_path" in settings else base)
    assert set(tmp_path.rglob("*")) == before


def test_a_base_that_the_adapter_names(base: Path, thin: dict, tmp_path: Path) -> None:
    folder = peft_adapters.write(tmp_path / "a", thin, 6, base_model_name_or_path=str(base), init_lora_weights="pissa")
    report = convert_lora(folder, tmp_path / "a.gguf")
    assert report.n_matrices == 2 and "init_lora_weights = pissa changes the base model" in str(report)


@pytest.mark.parametrize(
    ("rename", "error", "says"),
    [
        ({"lora_A.weight": "lora_magnitude_vector"}, UnsupportedError, "is not lora_A or lora_B of a matrix"),
        ({"lora_A.weight": "lora_embedding_A"}, UnsupportedError, "adapts an embedding"),
        ({"lora_A.weight": "lora_B.other.weight"}, UnsupportedError, "holds several adapters of"),
        ({"layers.1": "layers.7"}, CheckpointError, r"changes model\.layers\.7.*, which the base model does not have"),
        ({"down_proj": "up_proj"}, CheckpointError, r"is for a matrix \[96, 160\], the base has \[160, 96\]"),
        ({"mlp.down_proj": "input_layernorm"}, UnsupportedError, r"attn_norm\.weight is not a matrix"),
    ],
)
def test_tensors_that_are_refused(
    rename: dict[str, str], error: type[HybridError], says: str, base: Path, thin: dict, tmp_path: Path
) -> None:
    folder = peft_adapters.write(tmp_path / "a", thin, 6)
    path = folder / "adapter_model.safetensors"
    (old, new), changed = next(iter(rename.items())), {}
    for name, values in load_file(path).items():
        changed[name.replace(old, new)] = values
    if "lora_B.other.weight" in new:
        changed |= load_file(path)
    save_file(changed, path)
    with pytest.raises(error, match=says):
        convert_lora(folder, tmp_path / "a.gguf", base=base)


def test_damaged_and_missing_files(base: Path, thin: dict, tmp_path: Path) -> None:
    folder = peft_adapters.write(tmp_path / "a", thin, 6)
    path = folder / "adapter_model.safetensors"
    tensors = load_file(path)
    first = next(name for name in tensors if "lora_A" in name)
    for change, says in (
        ({first: tensors[first][:, :0]}, "expected"),
        ({first: tensors[first] * np.float32(np.nan)}, "holds NaN or infinite values"),
        ({first: tensors[first][:3]}, r"has lora_A \[3, 160\] and lora_B \[96, 4\], expected \[rank, n\]"),
    ):
        save_file(tensors | change, path)
        with pytest.raises(CheckpointError, match=says):
            convert_lora(folder, tmp_path / "a.gguf", base=base)
    save_file({name: values for name, values in tensors.items() if name != first}, path)
    with pytest.raises(CheckpointError, match="has only lora_B of model"):
        convert_lora(folder, tmp_path / "a.gguf", base=base)
    path.unlink()
    with pytest.raises(CheckpointError, match=r"has neither adapter_model\.safetensors nor adapter_model\.bin"):
        convert_lora(folder, tmp_path / "a.gguf", base=base)
    (folder / "adapter_config.json").unlink()
    with pytest.raises(CheckpointError, match=r"a has no adapter_config\.json\. Give the folder of a PEFT adapter"):
        convert_lora(folder, tmp_path / "a.gguf", base=base)
    with pytest.raises(UsageError, match="is not a folder"):
        convert_lora(tmp_path / "none", base=base)
    with pytest.raises(UsageError, match=r"^outtype q8_0: adapters are written as f32"):
        convert_lora(folder, base=base, outtype="q8_0")


def test_an_output_matrix_that_is_the_embedding(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(
        json.dumps({"vocab_size": 300, "max_position_embeddings": 64, **CONFIGS["qwen2"]})
    )
    rng = np.random.default_rng(1)
    pair = rng.standard_normal((2, 96)).astype(np.float32), rng.standard_normal((300, 2)).astype(np.float32)
    folder = peft_adapters.write(tmp_path / "a", {"lm_head.weight": pair}, 6)
    with pytest.raises(UnsupportedError, match=r"changes lm_head\.weight, which in this model is the embedding"):
        convert_lora(folder, tmp_path / "a.gguf", base=tmp_path)
