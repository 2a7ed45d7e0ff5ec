"""MLX folders of all families that are supported become the file of the checkpoint they were made from."""

import json
from pathlib import Path

import mlx_folders
import numpy as np
import pytest
import random_checkpoints
import random_towers
from families import merged
from random_checkpoints import CONFIGS
from random_models import TOKENIZER

from hybrid.convert import convert, plan, verify
from hybrid.convert.checkpoint.mlx_families import FAMILIES
from hybrid.quant.ggml.errors import UnsupportedError
from hybrid.quant.ggml.reader import GGUFFile

MODELS: dict[str, str] = merged("mlx")  # model_type -> a random model
# model_type of a model that sees -> a random one
SEEING = {
    "qwen3_5": "qwen35-vl", "qwen3_vl": "qwen3-vl", "qwen2_5_vl": "qwen25-vl", "gemma3": "gemma3-vl",
    "lfm2_vl": "lfm2-vl", "smolvlm": "smolvlm",
}  # fmt: skip


def test_every_family_has_a_model() -> None:
    """The text parts of Qwen3.5 have a name of their own in unpublished folders."""
    assert set(FAMILIES) == {*MODELS, *SEEING, "idefics3"}, "SmolVLM is an Idefics 3"


@pytest.mark.parametrize("family", MODELS)
@pytest.mark.parametrize("quantize", [True, False])
def test_families(family: str, quantize: bool, tmp_path: Path) -> None:
    """8 bits per weight change a value by less than 1 % of the largest; norms that were shifted only by rounding."""
    random_checkpoints.write(CONFIGS[MODELS[family]], tmp_path / "source")
    convert(tmp_path / "source", tmp_path / "expected.gguf", outtype="f32", tokenizer=TOKENIZER)
    mlx_folders.write(CONFIGS[MODELS[family]], family, tmp_path / "mlx", quantize=quantize)
    report = convert(tmp_path / "mlx", tmp_path / "got.gguf", outtype="f32", tokenizer=TOKENIZER)
    assert any("are quantized (mlx)" in note for note in report.notes) == quantize
    verify(tmp_path / "mlx", tmp_path / "got.gguf")
    same_values(tmp_path / "got.gguf", tmp_path / "expected.gguf", quantized=quantize)


@pytest.mark.parametrize("family", SEEING)
@pytest.mark.parametrize("quantize", [True, False])
def test_models_that_see(family: str, quantize: bool, tmp_path: Path, data_dir: Path) -> None:
    """The text model and its tower are the files of the checkpoint that mlx-vlm converted."""
    source = random_towers.write(SEEING[family], tmp_path / "source", data_dir / "checkpoints" / "mamba-bf16")
    convert(source, tmp_path / "want.gguf", outtype="f32")
    mlx_folders.write_seeing(source, family, tmp_path / "mlx", quantize=quantize)
    report = convert(tmp_path / "mlx", tmp_path / "got.gguf", outtype="f32")
    assert report.vision is not None and not any("left out" in note for note in report.all_notes)
    verify(tmp_path / "mlx", report.vision.output)
    for name in ("{}.gguf", "mmproj-{}.gguf"):
        same_values(tmp_path / name.format("got"), tmp_path / name.format("want"), quantized=quantize)


def same_values(found: Path, wanted: Path, *, quantized: bool) -> None:
    with GGUFFile.open(wanted) as expected, GGUFFile.open(found) as got:
        assert {name: t.shape for name, t in got.tensors.items()} == {n: t.shape for n, t in expected.tensors.items()}
        for name, tensor in expected.tensors.items():
            want = expected.f32(name)
            error = np.abs(got.f32(name) - want).max() / max(np.abs(want).max(), 1e-9)
            assert error < (0.01 if quantized and len(tensor.shape) > 1 else 1e-6), f"{name}: {error:.1e}"


def test_another_family(tmp_path: Path) -> None:
    mlx_folders.write(CONFIGS["llama-biased"], "llama", tmp_path / "mlx")
    path = tmp_path / "mlx" / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "model_type": "nanochat"}))
    says = "model_type = nanochat: an MLX folder of a family that is not supported; llama, .* are"
    with pytest.raises(UnsupportedError, match=says):
        plan(tmp_path / "mlx")


def test_a_folder_that_was_not_changed(tmp_path: Path) -> None:
    """The last dimension of convolutions is the taps: norms are the checkpoint's."""
    source = random_checkpoints.write(CONFIGS["qwen35"], tmp_path / "source")
    convert(source, tmp_path / "expected.gguf", outtype="f32", tokenizer=TOKENIZER)
    config = json.loads((source / "config.json").read_text())
    (source / "config.json").write_text(json.dumps({**config, "model_type": "qwen3_5_text"}))
    mark_as_mlx(source / "model.safetensors")
    convert(source, tmp_path / "got.gguf", outtype="f32", tokenizer=TOKENIZER)
    with GGUFFile.open(tmp_path / "expected.gguf") as expected, GGUFFile.open(tmp_path / "got.gguf") as got:
        for name in expected.tensors:
            np.testing.assert_array_equal(got.f32(name), expected.f32(name))


def mark_as_mlx(path: Path) -> None:
    """Add the mark of MLX to a file's header."""
    raw = path.read_bytes()
    n = int.from_bytes(raw[:8], "little")
    header = json.dumps({"__metadata__": {"format": "mlx"}, **json.loads(raw[8 : 8 + n])}).encode()
    path.write_bytes(len(header).to_bytes(8, "little") + header + raw[8 + n :])
