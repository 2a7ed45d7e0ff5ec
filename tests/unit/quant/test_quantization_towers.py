"""Files with vision towers are quantized to Q8_0 or F16: which tensors stay, and refused types."""

from pathlib import Path

import numpy as np
import pytest
import random_towers

from hybrid.convert import convert
from hybrid.quant import quantize
from hybrid.quant.ggml.errors import UsageError
from hybrid.quant.ggml.reader import GGUFFile
from hybrid.quant.ggml.types import FileType, GGMLType
from hybrid.quant.policy import Options


@pytest.fixture
def towers(tmp_path: Path, data_dir: Path) -> dict[str, Path]:
    """A tower by type: with rows of whole blocks, except for the projector's second matrix."""
    tokenizer = data_dir / "checkpoints" / "mamba-bf16"
    folder = random_towers.write("lfm3-vl", tmp_path / "model", tokenizer, wide=96)
    found = {}
    for kind in ("f32", "f16", "q8_0"):
        report = convert(folder, tmp_path / f"{kind}.gguf", outtype=kind)
        assert report.vision is not None
        found[kind] = report.vision.output
    return found


def types(path: Path) -> dict[str, GGMLType]:
    with GGUFFile.open(path) as file:
        return {name: info.type for name, info in file.tensors.items()}


def test_q8_0_has_the_bytes_of_a_conversion(towers: dict[str, Path], tmp_path: Path) -> None:
    output = quantize(towers["f32"], tmp_path / "out.gguf", "q8_0").dst
    with GGUFFile.open(output) as ours, GGUFFile.open(towers["q8_0"]) as other:
        assert ours.get("general.file_type") == int(FileType.Q8_0) and ours.get("general.type") == "mmproj"
        assert set(ours.tensors) == set(other.tensors)
        for name, info in ours.tensors.items():
            assert info.type is other.tensors[name].type, name
            assert np.array_equal(ours.raw(name), other.raw(name)), name


def test_tensors_that_stay(towers: dict[str, Path], tmp_path: Path) -> None:
    kinds, before = types(quantize(towers["f16"], tmp_path / "out.gguf", "Q8_0").dst), types(towers["f16"])
    changed = {name for name, kind in kinds.items() if kind is not before[name]}
    assert {kinds[name] for name in changed} == {GGMLType.Q8_0}
    assert {"v.blk.0.shortconv.in_proj.weight", "v.blk.1.attn_q.weight", "mm.1.weight"} < changed
    stays = ("v.patch_embd.weight", "v.patch_embd.weight.1", "v.blk.0.shortconv.conv.weight", "v.norm_embd.weight")
    assert not changed & {*stays, "mm.2.weight", "mm.1.bias", "v.blk.0.ln1.weight"}
    assert kinds["mm.2.weight"] is GGMLType.F16, "of 22 columns"


def test_back_to_f16(towers: dict[str, Path], tmp_path: Path) -> None:
    kinds = types(quantize(towers["q8_0"], tmp_path / "out.gguf", "F16").dst)
    assert kinds["v.blk.1.attn_q.weight"] is GGMLType.F16 and kinds["v.patch_embd.weight"] is GGMLType.F32
    assert types(quantize(towers["q8_0"], tmp_path / "copy.gguf", "COPY").dst) == types(towers["q8_0"])


def test_the_projector_of_gemma_3_stays(tmp_path: Path, data_dir: Path) -> None:
    tokenizer = data_dir / "checkpoints" / "mamba-bf16"
    report = convert(random_towers.write("gemma3-vl", tmp_path / "m", tokenizer, wide=35), tmp_path / "x.gguf")
    assert report.vision is not None
    kinds = types(quantize(report.vision.output, tmp_path / "out.gguf", "Q8_0").dst)
    assert kinds["mm.input_projection.weight"] is kinds["v.blk.0.attn_q.weight"] is GGMLType.F16


@pytest.mark.parametrize("kind", ["Q4_K_M", "Q6_K", "BF16", "F32", "Q5_0", "IQ4_XS"])
def test_other_types_are_refused(kind: str, towers: dict[str, Path], tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=rf"mmproj-f16.gguf is a vision tower, .* are F16 or Q8_0, not {kind}\."):
        quantize(towers["f16"], tmp_path / "out.gguf", kind)
    assert not (tmp_path / "out.gguf").exists()


def test_other_types_of_single_matrices_are_refused(towers: dict[str, Path], tmp_path: Path) -> None:
    options = Options(tensor_types=(("attn_q", GGMLType.Q4_0),))
    for target in ("Q8_0", "COPY"):
        with pytest.raises(UsageError, match=r"v.blk.1.attn_q.weight of a vision tower is F16 or Q8_0, not Q4_0"):
            quantize(towers["f16"], tmp_path / "out.gguf", target, options=options)
