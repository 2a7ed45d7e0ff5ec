"""gpt-oss's MXFP4 experts become GGUF blocks with the same codes, exponents and values."""

from pathlib import Path

import numpy as np
import pytest
import random_checkpoints
from mxfp4_checkpoints import FILE, pack, pack_rows, unpacked, unpacked_rows
from random_checkpoints import CONFIGS
from safetensors.numpy import load_file, save_file

from hybrid.convert import convert, plan, verify
from hybrid.infer import LoadedModel
from hybrid.quant import quantize
from hybrid.quant.ggml.errors import CheckpointError, HybridError
from hybrid.quant.ggml.reader import GGUFFile
from hybrid.quant.ggml.types import FileType, GGMLType

pytestmark = pytest.mark.exhaustive


@pytest.fixture
def published(tmp_path: Path) -> tuple[Path, Path]:
    """A random model in the published form, and the same model with decoded values."""
    folders = tmp_path / "packed", tmp_path / "plain"
    for folder in folders:
        random_checkpoints.write(CONFIGS["gpt-oss-rounded"], folder)
    pack(folders[0])
    save_file(unpacked(folders[0]), folders[1] / FILE)
    return folders


def changed(folder: Path, **tensors: np.ndarray | None) -> None:
    """Change `tensors` of layer 0, named by suffix; None leaves a tensor out."""
    kept = load_file(folder / FILE)
    for end, values in tensors.items():
        name = f"model.layers.0.mlp.experts.{end}"
        kept.pop(name)
        if values is not None:
            kept[name] = values
    save_file(kept, folder / FILE)


@pytest.mark.parametrize("outtype", ["auto", "bf16", "q8_0"])
def test_blocks_stay_blocks(published: tuple[Path, Path], outtype: str, tmp_path: Path, data_dir: Path) -> None:
    tokenizer = data_dir / "checkpoints" / "mamba-bf16"
    report = convert(published[0], tmp_path / "ours.gguf", outtype=outtype, tokenizer=tokenizer)
    assert "6 tensors of experts are mxfp4, and stay so whatever the type of the file" in report.notes
    stated = FileType.Q8_0 if outtype == "q8_0" else FileType.MXFP4_MOE  # as llama.cpp's converter says
    assert report.file_type is stated
    convert(published[1], tmp_path / "plain.gguf", outtype="f32", tokenizer=tokenizer)
    verify(published[0], tmp_path / "ours.gguf")
    stored = load_file(published[0] / FILE)
    with GGUFFile.open(tmp_path / "ours.gguf") as ours, GGUFFile.open(tmp_path / "plain.gguf") as plain:
        assert ours.get("general.file_type") == int(stated)
        for i in range(3):
            for part in ("gate", "up", "down"):
                name = f"blk.{i}.ffn_{part}_exps.weight"
                assert ours.info(name).type is GGMLType.MXFP4
                assert ours.info(name).shape == plain.info(name).shape
                np.testing.assert_array_equal(ours.f32(name), plain.f32(name))
            # not encoded again: that would choose other exponents for blocks without large values
            scales = stored[f"model.layers.{i}.mlp.experts.gate_up_proj_scales"]
            raw = ours.raw(f"blk.{i}.ffn_up_exps.weight").reshape(-1, 17)
            np.testing.assert_array_equal(raw[:, 0], scales[:, 1::2].reshape(-1))


def test_both_give_the_same_logits(published: tuple[Path, Path], tmp_path: Path, data_dir: Path) -> None:
    ids, got = np.random.default_rng(4).integers(0, 2000, 30).tolist(), []
    for i, folder in enumerate(published):
        path = tmp_path / f"{i}.gguf"
        convert(folder, path, outtype="f32", tokenizer=data_dir / "checkpoints" / "mamba-bf16")
        with LoadedModel.load(path, n_ctx=64, precision="exact") as model:
            got.append(model.sequence().logits_of(ids))
    assert np.abs(got[0] - got[1]).max() < 2e-5 * np.abs(got[1]).max()


def test_quantized_beside_its_experts(published: tuple[Path, Path], tmp_path: Path, data_dir: Path) -> None:
    """Like the published files: unchanged blocks, Q8_0 for matrices, and F32 for small tensors."""
    before, after = tmp_path / "before.gguf", tmp_path / "after.gguf"
    convert(published[0], before, tokenizer=data_dir / "checkpoints" / "mamba-bf16")
    with pytest.raises(HybridError, match="is MXFP4 already; Q4_K_M made from it is worse"):
        quantize(before, after, "Q4_K_M")
    quantize(before, after, "MXFP4_MOE")
    with GGUFFile.open(before) as old, GGUFFile.open(after) as new:
        kinds = {name.removeprefix("blk.1."): t.type for name, t in new.tensors.items() if name.startswith("blk.1.")}
        for name in old.tensors:
            if name.endswith("exps.weight"):
                assert new.raw(name).tobytes() == old.raw(name).tobytes()
    small = [name for name in kinds if name.endswith("bias") or "norm" in name or name.startswith("ffn_gate_inp")]
    assert {kinds[name] for name in [*small, "attn_sinks.weight"]} == {GGMLType.F32}
    assert kinds["ffn_up_exps.weight"] is GGMLType.MXFP4
    assert kinds["attn_q.weight"] is GGMLType.Q8_0


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"down_proj_scales": None}, r"lacks .*down_proj_scales, the scales of .*down_proj_blocks"),
        ({"down_proj_blocks": np.zeros((7, 96, 2, 8), np.uint8)}, r"down_proj_blocks is U8 \[7, 96, 2, 8\], exp"),
        ({"down_proj_blocks": np.zeros((7, 96, 2, 16), np.float16)}, r"down_proj_blocks is F16 \[7, 96, 2, 16\]"),
        ({"down_proj_scales": np.zeros((7, 96), np.uint8)}, r"down_proj_scales is U8 \[7, 96\], .* U8 \[7, 96, 2\]"),
        (
            {"down_proj_blocks": np.zeros((7, 96, 3, 16), "u1"), "down_proj_scales": np.zeros((7, 96, 3), "u1")},
            r"down_proj_blocks has shape \[7, 96, 96\], expected \[7, 96, 64\] by the config",
        ),
    ],
)
def test_what_does_not_fit(published: tuple[Path, Path], change: dict[str, np.ndarray | None], says: str) -> None:
    changed(published[0], **change)
    with pytest.raises(HybridError, match=says):
        plan(published[0])


@pytest.mark.parametrize("exponent", [253, 255])
def test_scales_that_are_no_numbers(
    published: tuple[Path, Path], exponent: int, tmp_path: Path, data_dir: Path
) -> None:
    scales = np.full((7, 96, 2), 120, np.uint8)
    scales[5, 3, 1] = exponent
    changed(published[0], down_proj_scales=scales)
    with pytest.raises(CheckpointError, match=r"layers\.0\.mlp\.experts\.down_proj_scales holds scales that are NaN"):
        convert(published[0], tmp_path / "m.gguf", tokenizer=data_dir / "checkpoints" / "mamba-bf16")
    assert not (tmp_path / "m.gguf").exists()


# --- rows as compressed-tensors packs them (Kimi K3) ---


@pytest.fixture
def packed_rows(tmp_path: Path) -> tuple[Path, Path]:
    """A random model in the published form, with its config in the text part, and the same model with values."""
    folders = tmp_path / "packed", tmp_path / "plain"
    for folder in folders:
        random_checkpoints.write(CONFIGS["kimi-k3"], folder)
    pack_rows(folders[0])
    save_file(unpacked_rows(folders[0]), folders[1] / FILE)
    return folders


def test_packed_rows_stay_blocks(packed_rows: tuple[Path, Path], tmp_path: Path, data_dir: Path) -> None:
    tokenizer = data_dir / "checkpoints" / "mamba-bf16"
    report = convert(packed_rows[0], tmp_path / "ours.gguf", outtype="bf16", tokenizer=tokenizer)
    assert "144 tensors of experts are mxfp4, and stay so whatever the type of the file" in report.notes
    assert report.file_type is FileType.MXFP4_MOE
    assert not [note for note in report.notes if "unknown" in note]
    convert(packed_rows[1], tmp_path / "plain.gguf", outtype="f32", tokenizer=tokenizer)
    verify(packed_rows[0], tmp_path / "ours.gguf")
    with GGUFFile.open(tmp_path / "ours.gguf") as ours, GGUFFile.open(tmp_path / "plain.gguf") as plain:
        for part in ("gate", "up", "down"):
            name = f"blk.2.ffn_{part}_exps.weight"
            assert (ours.info(name).type, ours.info(name).shape) == (GGMLType.MXFP4, plain.info(name).shape)
            np.testing.assert_array_equal(ours.f32(name), plain.f32(name))


@pytest.mark.parametrize(
    ("end", "values", "says"),
    [
        ("w1.weight_scale", None, r"lacks .*w1\.weight_scale, the scales of .*w1\.weight_packed"),
        ("w1.weight_packed", np.zeros((64, 17), np.uint8), r"w1\.weight_packed is U8 \[64, 17\], expected U8 \[rows"),
        ("w1.weight_scale", np.zeros((64, 2), np.uint8), r"w1\.weight_scale is U8 \[64, 2\], expected U8 \[64, 1\]"),
        ("w1.weight_packed", np.zeros((63, 16), np.uint8), r"w1\.weight_scale is U8 \[64, 1\], expected U8 \[63, 1\]"),
    ],
)
def test_packed_rows_that_do_not_fit(
    packed_rows: tuple[Path, Path], end: str, values: np.ndarray | None, says: str
) -> None:
    kept = load_file(packed_rows[0] / FILE)
    name = f"model.layers.2.block_sparse_moe.experts.3.{end}"
    kept.pop(name)
    if values is not None:
        kept[name] = values
    save_file(kept, packed_rows[0] / FILE)
    with pytest.raises(HybridError, match=says):
        plan(packed_rows[0])
