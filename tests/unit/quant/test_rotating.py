"""Rotated weights against the matrix of the transform, and what a rotated file says."""

from pathlib import Path

import numpy as np
import pytest
from reference.attention import hadamard

from hybrid.quant import GGUFSource, Imatrix, InputSums, quantize
from hybrid.quant.ggml.errors import UsageError
from hybrid.quant.ggml.reader import GGUFFile
from hybrid.quant.ggml.rotation import rotation_of, transform
from hybrid.quant.ggml.types import FileType, GGMLType
from hybrid.quant.ggml.writer import GGUFWriter
from hybrid.quant.rotating import RotatedSource

SHAPES = {
    "token_embd.weight": (40, 96),
    "output.weight": (40, 96),
    "blk.0.attn_q.weight": (24, 96),
    "blk.0.attn_norm.weight": (96,),
    "blk.0.ffn_gate_inp.weight": (3, 96),
    "blk.0.ffn_down_exps.weight": (3, 96, 64),
    "blk.0.ffn_up.weight": (8, 40),  # rows that no block of 32 divides
}


def written(path: Path, kind: GGMLType = GGMLType.F32, *, tied: bool = False, arch: str = "llama") -> Path:
    rng = np.random.default_rng(4)
    shapes = {name: shape for name, shape in SHAPES.items() if not (tied and name == "output.weight")}
    with GGUFWriter(path, arch) as writer:
        for name, shape in shapes.items():
            writer.declare(name, shape, GGMLType.F32)
        for name, shape in shapes.items():
            writer.write(name, rng.standard_normal(shape).astype(np.float32))
    if kind is GGMLType.F32:
        return path
    other = path.with_name("other.gguf")
    quantize(path, other, FileType[kind.name])
    return other


@pytest.mark.parametrize(("n", "block"), [(32, 16), (96, 32), (2048, 1024)])
def test_transform(n: int, block: int) -> None:
    x = np.random.default_rng(2).standard_normal((5, n)).astype(np.float32)
    expected = hadamard(x.astype(np.float64), block)
    transform(x, block)
    np.testing.assert_allclose(x, expected, atol=3e-6)


@pytest.mark.parametrize("kind", [GGMLType.F32, GGMLType.BF16])
@pytest.mark.parametrize("tied", [False, True])
def test_rows_and_keys(kind: GGMLType, tied: bool, tmp_path: Path) -> None:
    source, target = written(tmp_path / "m.gguf", kind, tied=tied), tmp_path / "rotated.gguf"
    with GGUFSource(source) as opened:
        rotated = RotatedSource(opened)
        quantize(rotated, target, FileType.F32, n_threads=2)
        assert rotated.block == 32 and rotated.is_read(source)
    with GGUFFile.open(target) as file, GGUFFile.open(source) as original:
        rotation = rotation_of(file)
        assert rotation is not None and rotation.block == 32 and rotation.heads is None
        folded = {"blk.0.attn_q.weight", "blk.0.ffn_down_exps.weight"} | ({"output.weight"} if not tied else set())
        assert rotation.folded == folded and rotation.restored == tied
        turned = folded | ({"token_embd.weight"} if tied else set())
        for name, t in original.tensors.items():
            expected = original.f32(name).astype(np.float64)
            if name in turned:
                expected = hadamard(expected * rotation.signs[t.shape[-1]], 32)
            np.testing.assert_allclose(file.f32(name), expected, atol=3e-6, err_msg=name)
        assert {abs(v) for signs in rotation.signs.values() for v in np.unique(signs)} == {1.0}
        assert len(np.unique(rotation.signs[96])) == 2


def test_bytes_do_not_depend_on_threads(tmp_path: Path) -> None:
    files = []
    for n_threads in (1, 3):
        with GGUFSource(written(tmp_path / "m.gguf")) as opened:
            path = tmp_path / f"{n_threads}.gguf"
            quantize(RotatedSource(opened), path, FileType.Q4_0, n_threads=n_threads)
            files.append(path.read_bytes())
    assert files[0] == files[1]


def test_importance_of_rotated_columns(tmp_path: Path) -> None:
    """The mean square of a rotated input is that of its block's inputs, whose signs are random."""
    sums = np.arange(192, dtype=np.float32).reshape(3, 64)
    entries = {"blk.0.ffn_down_exps.weight": InputSums(sums, np.ones(3, np.float32))}
    entries["blk.0.ffn_gate_inp.weight"] = InputSums(np.arange(96, dtype=np.float32)[None], np.ones(1, np.float32))
    with GGUFSource(written(tmp_path / "m.gguf")) as opened:
        found = RotatedSource(opened).importance(Imatrix(entries)).entries
    expected = np.repeat(sums.reshape(3, 2, 32).mean(axis=2), 32, axis=1)
    np.testing.assert_array_equal(found["blk.0.ffn_down_exps.weight"].sums, expected)
    assert found["blk.0.ffn_gate_inp.weight"] is entries["blk.0.ffn_gate_inp.weight"]


def test_refused(tmp_path: Path) -> None:
    with GGUFSource(written(tmp_path / "m.gguf", GGMLType.Q8_0)) as opened:
        with pytest.raises(UsageError, match=r"is Q8_0 already. Start from the F32, F16 or BF16 file"):
            RotatedSource(opened)
        quantize(RotatedSource(opened, allow_requantize=True), tmp_path / "r.gguf", FileType.F32)
    with GGUFSource(tmp_path / "r.gguf") as opened, pytest.raises(UsageError, match="has rotated weights already"):
        RotatedSource(opened)
    ternary = tmp_path / "t.gguf"
    with GGUFWriter(ternary, "llama") as writer:
        writer.declare("blk.0.attn_q.weight", (2, 256), GGMLType.TQ2_0)
        writer.write("blk.0.attn_q.weight", [np.zeros(2 * 66, np.uint8)])
    with GGUFSource(ternary) as opened, pytest.raises(UsageError, match="rotated ternary weights are not ternary"):
        RotatedSource(opened)
    odd = tmp_path / "odd.gguf"
    with GGUFWriter(odd, "llama") as writer:
        writer.declare("blk.0.attn_q.weight", (2, 40), GGMLType.F32)
        writer.write("blk.0.attn_q.weight", [np.zeros(320, np.uint8)])
    with GGUFSource(odd) as opened, pytest.raises(UsageError, match="has no matrix that can be rotated"):
        RotatedSource(opened)
