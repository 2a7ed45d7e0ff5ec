"""NVFP4 and MXFP4 stay in the file bit for bit, with factors in tensors of their own."""

from pathlib import Path
from typing import Any

import mlx_folders
import numpy as np
import pytest
from quantized_llama import CONFIG, Parts, codes, write
from random_checkpoints import CONFIGS
from random_models import TOKENIZER
from reference import quantized_checkpoints as twin

from hybrid.convert import convert, plan, verify
from hybrid.convert.architectures.family import row
from hybrid.convert.checkpoint import Checkpoint, Dtype
from hybrid.convert.checkpoint.dequantized import DequantizedTensor
from hybrid.convert.checkpoint.layouts import BlockFloats
from hybrid.convert.kept_blocks import kept
from hybrid.convert.transforms import columns_in_order, scaled, turned_over
from hybrid.infer import LoadedModel
from hybrid.quant.ggml import formats
from hybrid.quant.ggml.errors import CheckpointError, UnsupportedError
from hybrid.quant.ggml.reader import GGUFFile
from hybrid.quant.ggml.types import FileType, GGMLType

MODELOPT = {"quantization_config": {"quant_method": "modelopt", "quant_algo": "NVFP4"}}
EXPERTS = {**CONFIGS["qwen3moe"], "hidden_size": 64, "torch_dtype": "bfloat16"}


def nvfp4(rng: np.random.Generator, rows: int, n: int, factors: list[float]) -> tuple[Parts, np.ndarray]:
    factors.append(float(np.float32(rng.uniform(0.5, 2) / 512)))
    parts: Parts = {
        "weight": ("U8", codes(rng, rows, n // 2)),
        "weight_scale": ("F8_E4M3", rng.integers(0, 70, (rows, n // 16), dtype=np.uint8)),
        "weight_scale_2": ("F32", np.array(factors[-1], np.float32)),
        "input_scale": ("F32", np.array(0.25, np.float32)),
    }
    return parts, twin.block_floats(parts["weight"][1], parts["weight_scale"][1], 16, factor=factors[-1])


def logits(path: Path) -> np.ndarray:
    ids = np.random.default_rng(4).integers(0, 90, 40).tolist()
    with LoadedModel.load(path, n_ctx=64, precision="exact") as model:
        return model.sequence().logits_of(ids)


@pytest.mark.parametrize("outtype", ["auto", "nvfp4"])
def test_bits_are_kept(outtype: str, tmp_path: Path) -> None:
    """Rows of queries are moved, and a matrix of 96 columns, no whole blocks, is dequantized."""
    factors: list[float] = []
    expected = write(tmp_path / "model", MODELOPT, nvfp4, factors=factors)
    report = convert(tmp_path / "model", tmp_path / "kept.gguf", outtype=outtype, tokenizer=TOKENIZER)
    assert "7 matrices are quantized (modelopt): in the file 6 of 7 tensors keep their NVFP4 blocks" in str(report)
    assert report.file_type is FileType.NVFP4
    assert verify(tmp_path / "model", tmp_path / "kept.gguf").n_exact == report.n_tensors - 1
    with GGUFFile.open(tmp_path / "kept.gguf") as file:
        kinds = {name: tensor.type for name, tensor in file.tensors.items() if len(tensor.shape) > 1}
        assert kinds.pop("token_embd.weight") is kinds.pop("output.weight") is kinds.pop("blk.0.ffn_down.weight")
        assert set(kinds.values()) == {GGMLType.NVFP4} and len(kinds) == 6
        up = expected["model.layers.0.mlp.up_proj.weight"] / factors[5]
        np.testing.assert_allclose(file.f32("blk.0.ffn_up.weight"), up, rtol=1e-6)
        assert file.f32("blk.0.ffn_up.scale").tolist() == [factors[5]]
        assert file.f32("blk.0.ffn_up.input_scale").tolist() == [0.25]
        q = expected["model.layers.0.self_attn.q_proj.weight"].reshape(2, 2, 16, 64).swapaxes(1, 2).reshape(64, 64)
        np.testing.assert_allclose(file.f32("blk.0.attn_q.weight"), q / factors[0], rtol=1e-6)


@pytest.mark.parametrize(
    ("settings", "marked"),
    [
        ({"quant_algo": "NVFP4"}, []),
        ({"quant_algo": "W4A16_NVFP4"}, ["attn_k", "attn_output", "attn_q", "attn_v", "ffn_gate", "ffn_up"]),
        (
            {
                "quant_algo": "MIXED_PRECISION",
                "quantized_layers": {
                    "model.layers.0.mlp": {"quant_algo": "W4A16_NVFP4"},
                    "model.layers.0.mlp.up_proj": {"quant_algo": "NVFP4"},
                },
            },
            ["ffn_gate"],
        ),
    ],
)
def test_exact_inputs(settings: dict[str, Any], marked: list[str], tmp_path: Path) -> None:
    """Of weights alone in 4 bits: llama.cpp is told not to round their inputs. ffn_down is dequantized."""
    write(tmp_path / "model", {"quantization_config": {"quant_method": "modelopt", **settings}}, nvfp4, factors=[])
    convert(tmp_path / "model", tmp_path / "kept.gguf", tokenizer=TOKENIZER)
    with GGUFFile.open(tmp_path / "kept.gguf") as file:
        names = list(file.get("general.tensor_extra.name", []))
        assert names == [f"blk.0.{part}.weight" for part in marked]
        assert list(file.get("general.tensor_extra.prec_a4", [])) == [False] * len(marked)
    with LoadedModel.load(tmp_path / "kept.gguf", n_ctx=64):
        pass
    convert(tmp_path / "model", tmp_path / "plain.gguf", outtype="f16", tokenizer=TOKENIZER)
    with GGUFFile.open(tmp_path / "plain.gguf") as file:
        assert "general.tensor_extra.name" not in file.metadata


@pytest.mark.parametrize("config", [{**CONFIG, "intermediate_size": 128}, EXPERTS], ids=["dense", "experts"])
def test_a_file_with_factors_runs(config: dict[str, Any], tmp_path: Path) -> None:
    """As the file of the values that the blocks stand for. Experts have a factor each."""
    write(tmp_path / "model", MODELOPT, nvfp4, config=config, factors=[])
    for outtype in ("auto", "f32"):
        convert(tmp_path / "model", tmp_path / f"{outtype}.gguf", outtype=outtype, tokenizer=TOKENIZER)
        verify(tmp_path / "model", tmp_path / f"{outtype}.gguf")
    with GGUFFile.open(tmp_path / "auto.gguf") as file, GGUFFile.open(tmp_path / "f32.gguf") as values:
        same = [name for name in values.tensors if file.tensors[name].type is GGMLType.NVFP4]
        assert len(file.tensors) == len(values.tensors) + 2 * len(same)
        if config is EXPERTS:
            assert len(set(file.f32("blk.0.ffn_up_exps.scale").tolist())) == 5
            assert file.f32("blk.0.ffn_up_exps.input_scale").tolist() == [0.25] * 5
    expected, got = logits(tmp_path / "f32.gguf"), logits(tmp_path / "auto.gguf")
    error = np.abs(got - expected).max() / np.abs(expected).max()
    print(f"{error:.1e} of the largest logit")
    assert error < 1e-5


def test_without_nvfp4(tmp_path: Path) -> None:
    mlx_folders.write(CONFIGS["llama-biased"], "llama", tmp_path / "model")
    with pytest.raises(UnsupportedError, match="model has no matrix in NVFP4 that the file could keep"):
        plan(tmp_path / "model", outtype="nvfp4", tokenizer=TOKENIZER)


def block_floats(kind: GGMLType, rows: int = 3, n: int = 128, scale: int = 56, **more: Any) -> BlockFloats:
    rng = np.random.default_rng(5)
    some = rng.integers(0, 16, (rows, n), dtype=np.uint8)
    scales = rng.integers(scale, scale + 3, (rows, n // BlockFloats.PER_SCALE[kind]), dtype=np.uint8)
    return BlockFloats(kind, lambda i, j: some[i:j], lambda i, j: scales[i:j], "x.scales", **more)


@pytest.mark.parametrize(("kind", "scale"), [(GGMLType.NVFP4, 56), (GGMLType.MXFP4, 127)])
def test_blocks(kind: GGMLType, scale: int) -> None:
    """Decoded by the format; also with columns moved in groups."""
    packed, per = block_floats(kind, scale=scale), BlockFloats.PER_SCALE[kind]
    values = twin.E2M1 + tuple(-v for v in twin.E2M1)
    of_scale = twin.e4m3 if kind is GGMLType.NVFP4 else twin.e8m0
    meant = np.array([[values[code] for code in row] for row in packed.codes(0, 3).tolist()])
    meant *= np.repeat([[of_scale(s) for s in row] for row in packed.scales(0, 3).tolist()], per, axis=1)
    np.testing.assert_array_equal(formats.decode(kind, packed.blocks(0, 3)), meant)
    np.testing.assert_array_equal(formats.decode(kind, packed.blocks(1, 2)), meant[1:2])
    order = np.random.default_rng(1).permutation(128 // per)[:, None] * per + np.arange(per)
    got = packed.blocks(0, 3, order.reshape(-1))
    np.testing.assert_array_equal(formats.decode(kind, got), meant[:, order.reshape(-1)])


@pytest.mark.parametrize(("kind", "scale"), [(GGMLType.NVFP4, 127), (GGMLType.NVFP4, 129), (GGMLType.MXFP4, 253)])
def test_scales_that_gguf_has_not(kind: GGMLType, scale: int) -> None:
    """NaN, negative or too large."""
    with pytest.raises(CheckpointError, match=r"x\.scales holds scales that are NaN, negative or too large"):
        block_floats(kind, scale=scale).blocks(0, 3)


def test_what_is_kept(tmp_path: Path) -> None:
    """Not where columns of a scale are parted, values are computed, or a factor has no place (Gemma 4 has its own)."""
    write(tmp_path / "model", MODELOPT, nvfp4, factors=[])
    file = next(iter(Checkpoint(tmp_path / "model").tensors.values())).file

    def is_kept(target: str, transform: Any = None, n: int = 128, **more: Any) -> bool:
        packed = block_floats(GGMLType.NVFP4, n=n, **more)
        tensor = DequantizedTensor("x", Dtype.F32, (3, n), file, 0, packed=packed)
        return kept(row("x", target, 3, n, transform=transform), (tensor,))[0].block_type is GGMLType.NVFP4

    groups = columns_in_order(np.arange(128).reshape(-1, 16)[::-1].reshape(-1))
    assert is_kept("blk.0.ssm_out.weight", groups, factor=0.5)
    assert not is_kept("blk.0.ssm_out.weight", columns_in_order(np.arange(128)[::-1]))
    assert not is_kept("blk.0.ssm_out.weight", columns_in_order(np.roll(np.arange(128), 8)))
    assert not is_kept("blk.0.attn_q.weight", scaled(2.0))
    assert not is_kept("blk.0.attn_q.weight", turned_over(3))
    assert not is_kept("blk.0.attn_q.weight", n=96)
    assert is_kept("token_embd.weight") and not is_kept("token_embd.weight", factor=0.5)
    assert not is_kept("blk.0.ffn_gate_inp.weight")
    tensor = DequantizedTensor("x", Dtype.F32, (3, 128), file, 0, packed=block_floats(GGMLType.NVFP4, factor=0.5))
    down = row("x", "blk.0.ffn_down.weight", 3, 128)
    assert kept(down, (tensor,))[0].block_type is GGMLType.NVFP4
    assert kept(down, (tensor,), {"blk.0.ffn_down.scale"})[0].block_type is None
