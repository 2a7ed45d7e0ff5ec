"""Quantized checkpoints that the formats' own libraries wrote: samples of their tensors (tests/quantized_samples.py),
and all of them with logits of transformers, where the shared folder has them."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hybrid.convert import convert, verify
from hybrid.convert.checkpoint import Checkpoint, Dtype, StoredTensor
from hybrid.convert.checkpoint.quantized import plain
from hybrid.infer import LoadedModel

SAMPLES = Path(__file__).resolve().parents[3] / "data" / "quantized"
NAMES = ("ao-int8", "ao-intx4", "bnb-int8", "bnb-nf4", "ct-mixed", "ct-nvfp4", "hqq4", "mlx-affine4", "mlx-mixed",
         "mlx-mxfp4", "mlx-nvfp4", "modelopt-fp8", "modelopt-nvfp4")  # fmt: skip


def read(folder: Path) -> dict[str, StoredTensor]:
    checkpoint = Checkpoint(folder)
    return plain(checkpoint.tensors, checkpoint.config)


def compare(tensors: dict[str, StoredTensor], facts: dict[str, Any]) -> None:
    """Compare shape, sum, sum of absolutes and the first three values, up to 1e-6."""
    for name, (shape, total, size, first) in facts.items():
        tensor = tensors[name]
        values = tensor.floats(0, tensor.size).astype(np.float64)
        assert list(tensor.shape) == shape, name
        assert abs(values.sum() - total) <= 1e-6 * size and abs(np.abs(values).sum() - size) <= 1e-6 * size, name
        np.testing.assert_allclose(values[:3], first, rtol=1e-6, atol=1e-6 * np.abs(first).max(), err_msg=name)


@pytest.mark.parametrize("name", NAMES)
def test_samples(name: str) -> None:
    tensors, expected = read(SAMPLES / name), json.loads((SAMPLES / name / "expected.json").read_text())["weights"]
    assert set(expected) <= set(tensors)
    assert all(isinstance(tensor.dtype, Dtype) for tensor in tensors.values()), "parts are left over"
    compare(tensors, expected)


@pytest.mark.parametrize("name", NAMES)
def test_whole_checkpoints(name: str, shared_dir: Path, tmp_path: Path) -> None:
    """Every weight, and the logits in f32: within 4 times the noise of float32 in the reference, or 2e-4."""
    source = shared_dir / "lowbits" / "sources" / name
    meta = json.loads((source / "golden" / "meta.json").read_text())
    tensors = read(source)
    compare(tensors, meta["weights"])
    one, whole = tensors[meta["one_tensor"]], np.load(source / "golden" / "one_tensor.npy")
    np.testing.assert_allclose(one.floats(0, one.size).reshape(one.shape), whole, rtol=1e-6)
    # these files keep all matrices bit for bit
    exact = ("ct-nvfp4", "mlx-mxfp4", "mlx-nvfp4", "modelopt-nvfp4")
    for outtype in ("f32", "auto") if name in exact else ("f32",):
        path = tmp_path / f"{outtype}.gguf"
        convert(source, path, outtype=outtype)
        verify(source, path)
        compare_logits(path, source, meta)


def compare_logits(path: Path, source: Path, meta: dict[str, Any]) -> None:
    with (
        np.load(source / "golden" / "logits.npz") as logits,
        LoadedModel.load(path, n_ctx=64, precision="exact") as model,
    ):
        for prompt, ids in meta["prompts"].items():
            sequence = model.sequence()
            error = np.abs(sequence.logits_of(ids) - logits[f"{prompt}_logits"]).max()
            sequence.close()
            print(f"{path.name} {prompt}: {error:.1e}")
            assert error < max(2e-4, 4 * meta["noise_float32_float64"][prompt])
