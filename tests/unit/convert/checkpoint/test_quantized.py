"""Quantized checkpoints are decoded: every layout against a slow twin, in pieces of any size."""

import json
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import quantized_llama
import random_checkpoints
from quantized_llama import FINITE, Make, Parts, bf16, change, compare, scales, values_of, words
from random_checkpoints import CONFIGS
from reference import quantized_checkpoints as twin
from typed_safetensors import save

from hybrid.convert import convert, plan, stream, verify
from hybrid.convert.architectures.family import row
from hybrid.convert.checkpoint import Checkpoint
from hybrid.convert.checkpoint.quantized import dequantized
from hybrid.convert.plan import _job
from hybrid.quant.ggml.errors import CheckpointError, HybridError, UnsupportedError
from hybrid.quant.ggml.reader import GGUFFile
from hybrid.quant.ggml.types import FileType, GGMLType


def fp8(rng: np.random.Generator, rows: int, n: int, *scale: int, end: str = "weight_scale") -> Parts:
    return {"weight": ("F8_E4M3", rng.choice(FINITE, (rows, n))), end: ("F32", scales(rng, *scale))}


def case_block(rng: np.random.Generator, rows: int, n: int) -> tuple[Parts, np.ndarray]:
    parts = fp8(rng, rows, n, -(-rows // 24), -(-n // 40), end="weight_scale_inv")
    return parts, twin.in_place(values_of(parts), twin.e4m3, "weight_scale_inv", (24, 40))


def case_powers(rng: np.random.Generator, rows: int, n: int) -> tuple[Parts, np.ndarray]:
    """DeepSeek's ue8m0: scales are powers of two."""
    parts = fp8(rng, rows, n, 1)
    powers = rng.integers(100, 130, (-(-rows // 24), -(-n // 40)), dtype=np.uint8)
    parts = {"weight": parts["weight"], "weight_scale_inv": ("F8_E8M0", powers)}
    meant = values_of(parts) | {"weight_scale_inv": 2.0 ** (powers.astype(np.float64) - 127)}
    return parts, twin.in_place(meant, twin.e4m3, "weight_scale_inv", (24, 40))


def case_tensor(rng: np.random.Generator, rows: int, n: int) -> tuple[Parts, np.ndarray]:
    parts = fp8(rng, rows, n) | {"input_scale": ("F32", scales(rng, 1))}
    return parts, twin.in_place(values_of(parts), twin.e4m3, "weight_scale")


def case_e5m2(rng: np.random.Generator, rows: int, n: int) -> tuple[Parts, np.ndarray]:
    codes = rng.choice(np.array([c for c in range(256) if c & 127 < 124], np.uint8), (rows, n))
    parts: Parts = {"weight": ("F8_E5M2", codes), "weight_scale": ("F32", scales(rng, rows, 1))}
    return parts, twin.in_place(values_of(parts), twin.e5m2, "weight_scale")


def case_channel(rng: np.random.Generator, rows: int, n: int) -> tuple[Parts, np.ndarray]:
    parts = fp8(rng, rows, n) | {"weight_scale": ("BF16", bf16(scales(rng, rows, 1)))}
    return parts, twin.in_place(values_of(parts), twin.e4m3, "weight_scale")


def case_int8(rng: np.random.Generator, rows: int, n: int) -> tuple[Parts, np.ndarray]:
    parts: Parts = {
        "weight": ("I8", rng.integers(-128, 128, (rows, n), dtype=np.int8)),
        "weight_scale": ("F32", scales(rng, rows, n // 16)),
        "weight_zero_point": ("I8", rng.integers(-9, 9, (rows, n // 16), dtype=np.int8)),
    }
    return parts, twin.in_place(values_of(parts), float, "weight_scale")


def case_packed(
    rng: np.random.Generator, rows: int, n: int, bits: int = 4, zeros: bool = False, order: bool = False
) -> tuple[Parts, np.ndarray]:
    parts: Parts = {
        "weight_packed": ("I32", words(rng, rows, -(-n * bits // 32))),
        "weight_scale": ("BF16", bf16(scales(rng, rows, n // 16))),
        "weight_shape": ("I64", np.array([rows, n])),
    }
    if zeros:
        parts["weight_zero_point"] = ("I32", words(rng, -(-rows * bits // 32), n // 16))
    if order:
        parts["weight_g_idx"] = ("I32", rng.permutation(np.arange(n, dtype=np.int32) // 16))
    return parts, twin.packed(values_of(parts), bits)


def case_gptq(
    rng: np.random.Generator, rows: int, n: int, bits: int = 4, order: bool = False, v2: bool = False
) -> tuple[Parts, np.ndarray]:
    groups = np.arange(n, dtype=np.int32) // 32
    parts: Parts = {
        "qweight": ("I32", words(rng, n * bits // 32, rows)),
        "qzeros": ("I32", words(rng, n // 32, -(-rows * bits // 32))),
        "scales": ("F16", scales(rng, n // 32, rows).astype(np.float16)),
        "g_idx": ("I32", rng.permutation(groups) if order else groups),
        "bias": ("F16", np.zeros(rows, np.float16)),
    }
    return parts, twin.gptq(values_of(parts), bits, v2)


def case_awq(rng: np.random.Generator, rows: int, n: int) -> tuple[Parts, np.ndarray]:
    parts: Parts = {
        "qweight": ("I32", words(rng, n, rows // 8)),
        "qzeros": ("I32", words(rng, n // 32, rows // 8)),
        "scales": ("F16", scales(rng, n // 32, rows).astype(np.float16)),
    }
    return parts, twin.awq(values_of(parts))


def weights(kind: str, **more: Any) -> dict[str, Any]:
    return {"quant_method": "compressed-tensors", "format": kind, "config_groups": {"group_0": {"weights": more}}}


V2 = {"bits": 2, "v2": True}
# what GPTQModel, AutoRound, AutoAWQ and transformers write
TOOLS_GPTQ = {
    "format": "gptq", "group_size": 32, "desc_act": False, "sym": True, "lm_head": False, "pack_dtype": "int32",
    "meta": {"quantizer": ["gptqmodel:4.0.0"]}, "dynamic": {"-:.*gate.*": {}, "up": {"bits": 4}}, "damp_percent": 0.05,
    "iters": 200, "autoround_version": "0.4.6", "data_type": "int", "is_marlin_format": False,
}  # fmt: skip
TOOLS_AWQ = {"zero_point": True, "group_size": 32, "modules_to_not_convert": ["lm_head"], "backend": "autoawq"}
TOOLS_FP8 = {"activation_scheme": "dynamic", "fmt": "e4m3", "modules_to_not_convert": ["lm_head"], "dequantize": False}
CASES: dict[str, tuple[dict[str, Any], Make, dict[str, Any]]] = {
    "fp8 in blocks": ({"quant_method": "fp8", "weight_block_size": [24, 40]}, case_block, {}),
    "fp8, powers": ({"quant_method": "fp8", "weight_block_size": [24, 40]}, case_powers, {}),
    "fp8": ({"quant_method": "fp8"}, case_tensor, {}),
    "fbgemm": ({"quant_method": "fbgemm_fp8"}, case_e5m2, {}),
    "modelopt": ({"quant_method": "modelopt", "quant_algo": "FP8"}, case_tensor, {}),
    "compressed fp8": (weights("float-quantized", num_bits=8, type="float"), case_channel, {}),
    "compressed int8": (weights("int-quantized", num_bits=8, type="int"), case_int8, {}),
    "packed": (weights("pack-quantized", num_bits=4, type="int"), case_packed, {}),
    "packed, zero points": (weights("pack-quantized", num_bits=4), case_packed, {"zeros": True, "order": True}),
    "packed, 8 bits": (weights("pack-quantized", num_bits=8), case_packed, {"bits": 8, "zeros": True}),
    "gptq": ({"quant_method": "gptq", "bits": 4}, case_gptq, {}),
    "gptq, desc_act": ({"quant_method": "gptq", "bits": 4, "desc_act": True}, case_gptq, {"order": True}),
    "gptq, 8 bits": ({"quant_method": "gptq", "bits": 8}, case_gptq, {"bits": 8, "order": True}),
    "gptq v2": ({"quant_method": "gptq", "bits": 2, "checkpoint_format": "gptq_v2"}, case_gptq, V2),
    "gptq v2, format": ({"quant_method": "gptq", "bits": 2, "format": "gptq_v2"}, case_gptq, V2),
    "gptq, tools": ({"quant_method": "gptq", "bits": 4, **TOOLS_GPTQ}, case_gptq, {}),
    "awq": ({"quant_method": "awq", "bits": 4, "version": "gemm"}, case_awq, {}),
    "awq, tools": ({"quant_method": "awq", "bits": 4, "format": "gemm", **TOOLS_AWQ}, case_awq, {}),
    "fp8, tools": ({"quant_method": "fp8", **TOOLS_FP8}, case_tensor, {}),
}


def write(folder: Path, name: str) -> dict[str, np.ndarray]:
    settings, make, more = CASES[name]
    return quantized_llama.write(folder, {"quantization_config": settings}, make, **more)


@pytest.mark.parametrize("name", CASES)
def test_layouts(name: str, tmp_path: Path) -> None:
    """Equal to the bit: one product of numbers that are exact in f64, rounded once."""
    compare(tmp_path / "model", write(tmp_path / "model", name))


@pytest.mark.parametrize("name", ["fp8 in blocks", "packed, zero points", "gptq, desc_act", "awq"])
def test_converted(name: str, tmp_path: Path, data_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In pieces of a few rows, with heads interleaved on the way; the type is the one before quantizing."""
    monkeypatch.setattr(stream, "SLICE_VALUES", 64 * 5)
    expected = write(tmp_path / "model", name)
    out = tmp_path / "out.gguf"
    config = json.loads((tmp_path / "model" / "config.json").read_text())
    assert plan(tmp_path / "model", tokenizer=data_dir / "checkpoints" / "mamba-bf16").file_type.name == "BF16"
    tokenizer = data_dir / "checkpoints" / "mamba-bf16"
    report = convert(tmp_path / "model", out, outtype="f32", tokenizer=tokenizer)
    assert f"7 matrices are quantized ({config['quantization_config']['quant_method']})" in str(report)
    assert verify(tmp_path / "model", out).n_exact == report.n_tensors
    with GGUFFile.open(out) as file:
        assert not any(key.endswith(".bias") for key in file.tensors)
        down = expected["model.layers.0.mlp.down_proj.weight"].astype(np.float32)
        np.testing.assert_array_equal(file.f32("blk.0.ffn_down.weight"), down)
        q = expected["model.layers.0.self_attn.q_proj.weight"].astype(np.float32)
        turned = q.reshape(2, 2, 16, 64).swapaxes(1, 2).reshape(64, 64)
        np.testing.assert_array_equal(file.f32("blk.0.attn_q.weight"), turned)
    convert(tmp_path / "model", out, tokenizer=tokenizer)
    with GGUFFile.open(out) as file:
        assert {t.type for t in file.tensors.values() if len(t.shape) > 1} == {GGMLType.BF16}


@pytest.mark.parametrize(
    ("name", "file", "content"),
    [
        ("gptq", "quantize_config.json", {"bits": 4, "group_size": 32, "desc_act": False}),
        ("modelopt", "hf_quant_config.json", {"producer": {"name": "modelopt"}, "quantization": {"quant_algo": "FP8"}}),
    ],
)
def test_what_older_tools_write_beside_the_config(
    name: str, file: str, content: dict[str, Any], tmp_path: Path
) -> None:
    expected = write(tmp_path / "model", name)
    config = json.loads((tmp_path / "model" / "config.json").read_text())
    del config["quantization_config"]
    (tmp_path / "model" / "config.json").write_text(json.dumps(config))
    (tmp_path / "model" / file).write_text(json.dumps(content))
    checkpoint = Checkpoint(tmp_path / "model")
    tensors = dequantized(checkpoint.tensors, checkpoint.config)
    for key, meant in expected.items():
        np.testing.assert_array_equal(tensors[key].floats(0, meant.size), meant.astype(np.float32).reshape(-1))


@pytest.mark.parametrize(
    ("name", "settings", "says"),
    [
        ("fp8", {"quant_method": "quanto"}, r"already, by quanto, which is not read; fp8, .* are"),
        ("fp8", {"quant_method": None}, "quant_method does not say how"),
        ("fp8", {"weight_block_size": [128]}, r"weight_block_size = \[128\] .* expected two positive integers"),
        ("packed", {"format": "marlin-24"}, "format = marlin-24 cannot be read"),
        ("packed", {"transform_config": {"u": 1}}, "transform_config is not supported"),
        ("gptq", {"bits": 3}, "GPTQ of 3 bits cannot be read"),
        ("gptq", {"checkpoint_format": "marlin"}, 'checkpoint_format = "marlin" is not supported'),
        ("gptq", {"bits": None}, "has no bits"),
        ("gptq", {"format": "marlin"}, 'format = "marlin" is not supported'),
        ("gptq", {"is_marlin_format": True}, "is_marlin_format = true is not supported"),
        ("gptq", {"pack_dtype": "int64"}, 'pack_dtype = "int64" is not supported'),
        (
            "gptq",
            {"dynamic": {"+:.*down.*": {"bits": 8}}},
            r"dynamic: matrices of \+:\.\*down\.\* have other bits than 4",
        ),
        ("gptq", {"rotation": "hadamard"}, 'rotation = "hadamard" is not understood'),
        ("gptq", {"adapter": {"rank": 32}}, r'adapter = \{"rank": 32\} is not understood'),
        ("awq", {"format": "gemv_fast"}, 'format = "gemv_fast" is not supported'),
        ("awq", {"backend": "llm-awq"}, "llm-awq packs matrices in another way"),
        ("awq", {"rotation": "random"}, 'rotation = "random" is not understood'),
        ("fp8", {"rotation": "random"}, 'rotation = "random" is not understood'),
        ("fbgemm", {"bias_correction": 1}, "bias_correction = 1 is not understood"),
        ("awq", {"version": "gemv"}, 'version = "gemv" is not supported'),
    ],
)
def test_methods_that_are_refused(name: str, settings: dict[str, Any], says: str, tmp_path: Path) -> None:
    write(tmp_path / "model", name)
    change(tmp_path / "model", "quantization_config", **settings)
    with pytest.raises(HybridError, match=says):
        plan(tmp_path / "model", vocab_only=False)


@pytest.mark.parametrize(
    ("name", "end", "new", "error", "says"),
    [
        ("fp8 in blocks", "q_proj.weight_scale_inv", (3, 3), CheckpointError, r"has shape \[3, 3\] for a matrix"),
        ("fp8", "q_proj.weight_scale", None, UnsupportedError, "is of type F8_E4M3, which weights cannot be read from"),
        ("packed", "q_proj.weight_shape", None, CheckpointError, "lacks .*weight_shape, which its quantized"),
        ("packed", "q_proj.weight_scale", (64, 7), CheckpointError, "has 7 groups, no divisor of its 64 columns"),
        ("gptq", "q_proj.scales", None, CheckpointError, r"lacks .*q_proj\.scales"),
        ("gptq", "q_proj.qzeros", (2, 5), CheckpointError, r"q_proj\.qzeros has shape \[2, 5\], expected \[2, 8\]"),
        ("awq", "q_proj.scales", (5, 64), CheckpointError, r"qzeros has shape \[2, 8\], expected \[5, 8\]"),
    ],
)
def test_tensors_that_do_not_fit(
    name: str, end: str, new: tuple[int, ...] | None, error: type[HybridError], says: str, tmp_path: Path
) -> None:
    write(tmp_path / "model", name)
    file, tensors = Checkpoint(tmp_path / "model"), {}
    for key, tensor in file.tensors.items():
        kind = tensor.dtype if isinstance(tensor.dtype, str) else tensor.dtype.name
        size = {"I64": "i8", "I32": "i4", "F32": "f4", "F16": "f2", "BF16": "u2"}.get(kind, "u1")
        tensors[key] = (kind, tensor.raw(np.dtype(size), 0, tensor.size).reshape(tensor.shape))
    target = next(key for key in tensors if key.endswith(end))
    kind, values = tensors.pop(target)
    if new is not None:
        tensors[target] = (kind, np.ones(new, values.dtype))
    save(tmp_path / "model" / "model.safetensors", tensors)
    with pytest.raises(error, match=says):
        plan(tmp_path / "model")


def test_a_group_that_is_none(tmp_path: Path) -> None:
    write(tmp_path / "model", "gptq")
    checkpoint = Checkpoint(tmp_path / "model")
    order = next(t for key, t in checkpoint.tensors.items() if key.endswith("q_proj.g_idx"))
    with (tmp_path / "model" / "model.safetensors").open("r+b") as f:
        f.seek(order.offset)
        f.write(np.array([77], np.int32).tobytes())
    with pytest.raises(CheckpointError, match=r"q_proj\.g_idx names group 77, there are 2"):
        plan(tmp_path / "model")


def test_values_that_are_no_numbers(tmp_path: Path, data_dir: Path) -> None:
    write(tmp_path / "model", "fp8")
    weight = next(t for key, t in Checkpoint(tmp_path / "model").tensors.items() if key.endswith("q_proj.weight"))
    with (tmp_path / "model" / "model.safetensors").open("r+b") as f:
        f.seek(weight.offset + 5)
        f.write(b"\x7f")
    with pytest.raises(CheckpointError, match=r"q_proj\.weight holds NaN or infinite values"):
        convert(tmp_path / "model", tmp_path / "out.gguf", tokenizer=data_dir / "checkpoints" / "mamba-bf16")
    assert not (tmp_path / "out.gguf").exists()


def test_a_checkpoint_that_was_dequantized_already(tmp_path: Path) -> None:
    """Its config still names the method, but no tensor is quantized."""
    folder = random_checkpoints.write(CONFIGS["llama-biased"], tmp_path / "model")
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "quantization_config": {"quant_method": "fp8"}}))
    checkpoint = Checkpoint(folder)
    tensors = dequantized(checkpoint.tensors, checkpoint.config)
    assert tensors == checkpoint.tensors


@pytest.mark.slow
@pytest.mark.parametrize("name", ["fp8 in blocks", "gptq, desc_act"])
def test_memory_depends_on_no_matrix(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Read by two threads, as in a conversion: only a bounded number of rows is in memory, not the matrix."""
    for slow in ("in_place", "gptq"):
        monkeypatch.setattr(twin, slow, lambda *_, **__: None)
    settings, make, more = CASES[name]
    n_rows, n = 2560, 6144
    parts, _ = make(np.random.default_rng(1), n_rows, n, **more)
    save(tmp_path / "model.safetensors", {f"x.{end}": part for end, part in parts.items() if end != "bias"})
    (tmp_path / "config.json").write_text(json.dumps({"quantization_config": settings}))
    checkpoint = Checkpoint(tmp_path)
    tensors = dequantized(checkpoint.tensors, checkpoint.config)
    job = _job(row("x.weight", "x.weight", n_rows, n), (tensors["x.weight"],), FileType.BF16)
    tracemalloc.start()
    total = sum(part.nbytes for _, parts in stream.in_order([job], 2) for part in parts)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    print(f"peak {peak / 1e6:.1f} MB for {4 * n_rows * n / 1e6:.1f} MB")
    assert total == 2 * n_rows * n and peak < 48e6 < 4 * n_rows * n
