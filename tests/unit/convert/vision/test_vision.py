"""A checkpoint with a vision tower becomes two files: their names, tensors, types and keys."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import random_towers
from reference import towers
from safetensors.numpy import load_file, save_file

from hybrid.convert import ConvertReport, convert, plan, verify
from hybrid.quant.ggml import formats
from hybrid.quant.ggml.errors import CheckpointError, UnsupportedError
from hybrid.quant.ggml.reader import GGUFFile
from hybrid.quant.ggml.types import FileType, GGMLType
from hybrid.quant.ggml.vision import picture_settings
from hybrid.quant.ggml.vision.tower import read_tower

NAMES = list(random_towers.CONFIGS)
Make = Callable[..., Path]


@pytest.fixture
def checkpoint(tmp_path: Path, data_dir: Path) -> Make:
    """A checkpoint with a tower and a tokenizer. vision, picture, outer: changed fields."""

    def make(name: str, folder: str = "model", **changes: Any) -> Path:
        return random_towers.write(name, tmp_path / folder, data_dir / "checkpoints" / "mamba-bf16", **changes)

    return make


def tower_of(report: ConvertReport) -> Path:
    assert report.vision is not None
    return report.vision.output


def values(file: GGUFFile, name: str) -> np.ndarray:
    """A tensor's values, f32."""
    info = file.tensors[name]
    rows = np.ascontiguousarray(file.raw(name)).reshape(int(np.prod(info.shape[:-1])), -1)
    return formats.decode(info.type, rows).reshape(info.shape)


@pytest.mark.parametrize("name", NAMES)
def test_every_tensor_is_the_twins(name: str, checkpoint: Make, tmp_path: Path) -> None:
    folder = checkpoint(name)
    config = json.loads((folder / "config.json").read_text())
    expected = dict(towers.TOWERS[config["architectures"][0]](load_file(folder / "model.safetensors"), config))
    output = tower_of(convert(folder, tmp_path / "x.gguf", outtype="f32"))
    with GGUFFile.open(output) as file:
        assert file.tensors.keys() == expected.keys()
        for target, value in expected.items():
            found = values(file, target)
            assert found.shape == value.shape and np.array_equal(found, value), target
    rounded = name == "gemma3-vl"  # its projector is always F16
    assert verify(folder, output).n_exact == len(expected) - rounded
    assert verify(folder, tmp_path / "x.gguf").n_tensors > 0


@pytest.mark.parametrize("name", NAMES)
def test_types(name: str, checkpoint: Make, tmp_path: Path) -> None:
    """Matrices have the type of the file, and F16 if their rows are no whole blocks; all else is F32."""
    folder = checkpoint(name)
    for kind in ("auto", "f16", "bf16", "q8_0"):
        with GGUFFile.open(tower_of(convert(folder, tmp_path / f"{kind}.gguf", outtype=kind))) as file:
            stated = FileType(file.get("general.file_type"))
            assert stated.name.lower() == (kind if kind != "auto" else "f16")
            for info in file.tensors.values():
                assert info.type in (GGMLType.F32, GGMLType.F16, GGMLType[stated.name]), info
                if len(info.shape) == 1 or info.name == "v.position_embd.weight":
                    assert info.type is GGMLType.F32, info
                if info.name.startswith("v.patch_embd.weight"):
                    half = stated is FileType.F16 and name not in ("smolvlm", "gemma3-vl")
                    assert info.type is (GGMLType.F16 if half else GGMLType.F32)
                if info.name.startswith(("v.blk.1.ffn_up.weight", "v.blk.1.ffn_down.weight")):
                    assert info.type is (GGMLType.F16 if kind == "q8_0" else GGMLType[stated.name])


def test_rows_of_whole_blocks_are_quantized(checkpoint: Make, tmp_path: Path) -> None:
    folder = checkpoint("lfm3-vl", "wide", wide=96)
    with GGUFFile.open(tower_of(convert(folder, tmp_path / "x.gguf", outtype="q8_0"))) as file:
        kinds = {name: info.type for name, info in file.tensors.items() if len(info.shape) == 2}
    assert {name for name, kind in kinds.items() if kind is GGMLType.Q8_0} > {"v.blk.0.ffn_up.weight", "mm.1.weight"}
    assert kinds["mm.2.weight"] is GGMLType.F16  # of 22 columns


@pytest.mark.parametrize("name", NAMES)
def test_sizes_are_read_back(name: str, checkpoint: Make, tmp_path: Path) -> None:
    config, picture, _ = random_towers.CONFIGS[name]
    vision = config["vision_config"]
    with GGUFFile.open(tower_of(convert(checkpoint(name), tmp_path / "x.gguf"))) as file:
        h, settings = read_tower(file), picture_settings(file)
        assert (file.get("general.type"), file.get("general.architecture")) == ("mmproj", "clip")
        assert not [key for key in file.metadata if key.startswith("tokenizer.")]
    assert h.n_layer == vision.get("depth", vision.get("num_hidden_layers"))
    assert h.n_head == vision.get("num_heads", vision.get("num_attention_heads"))
    assert (h.n_embd, h.n_ff, h.n_out) == (vision["hidden_size"], vision["intermediate_size"], 18)
    assert h.patch_size == settings.patch_size == vision["patch_size"]
    assert settings.image_mean == pytest.approx(picture["image_mean"])
    assert settings.resample == ("nearest", "lanczos", "bilinear", "bicubic")[picture["resample"]]


def test_settings_of_a_smart_resize(checkpoint: Make, tmp_path: Path) -> None:
    folder = checkpoint("qwen35-vl", picture={"min_pixels": 900, "rescale_factor": 2 / 255})
    with GGUFFile.open(tower_of(convert(folder, tmp_path / "x.gguf"))) as file:
        settings = picture_settings(file)
        assert [getattr(settings, name) for name in ("min_pixels", "max_pixels", "merge_size")] == [900, 16384, 3]
        assert settings.image_mean == pytest.approx([0.25, 0.125, 0.25])
        assert settings.image_std == pytest.approx([0.25, 0.25, 0.375])
        assert read_tower(file).freq_base == 700  # type: ignore[attr-defined]


def test_without_normalization(checkpoint: Make, tmp_path: Path) -> None:
    folder = checkpoint("smolvlm", picture={"do_normalize": False, "image_mean": None})
    with GGUFFile.open(tower_of(convert(folder, tmp_path / "x.gguf"))) as file:
        settings = picture_settings(file)
    assert (settings.image_mean, settings.image_std) == ((0, 0, 0), (1, 1, 1))


def test_settings_within_the_processor_take_precedence(checkpoint: Make, tmp_path: Path) -> None:
    folder = checkpoint("smolvlm")
    own = json.loads((folder / "preprocessor_config.json").read_text())
    (folder / "processor_config.json").write_text(
        json.dumps({"image_processor": {**own, "size": {"longest_edge": 48}, "tint": 3}})
    )
    report = convert(folder, tmp_path / "x.gguf")
    assert report.vision is not None
    assert report.vision.notes == (
        "processor_config.json: image_processor: tint unknown for this architecture, and ignored",
    )
    with GGUFFile.open(report.vision.output) as file:
        assert file.get("clip.vision.preproc_image_size") == 48


def test_texts_of_tokens(checkpoint: Make, tmp_path: Path) -> None:
    folder = checkpoint("smolvlm")
    path = folder / "tokenizer_config.json"
    tokens = {"image_token": "<pic>", "extra_special_tokens": {"global_image_token": {"content": "<all>"}}}
    path.write_text(json.dumps({**json.loads(path.read_text()), **tokens}))
    with GGUFFile.open(tower_of(convert(folder, tmp_path / "x.gguf"))) as file:
        assert file.get("hybrid.vision.image_token") == "<pic>"
        assert file.get("hybrid.vision.global_token") == "<all>"
        assert "hybrid.vision.around_token" not in file.metadata


def test_names_of_the_two_files(checkpoint: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = checkpoint("qwen35-vl", "Tiny-VL-Instruct")
    monkeypatch.chdir(tmp_path)
    planned = plan(folder)
    assert planned.vision is not None
    stem = planned.output.name.removesuffix("-F32.gguf")
    assert stem.startswith("Tiny-VL-") and stem.endswith("-Instruct")
    assert planned.vision.output == Path(f"mmproj-{stem}-F16.gguf")
    (tmp_path / "out").mkdir()
    for output, names in ((None, Path()), (tmp_path / "out", tmp_path / "out")):
        report = convert(folder, output)
        assert (report.output, tower_of(report)) == (names / planned.output, names / planned.vision.output)
    named = convert(folder, tmp_path / "out" / "some.gguf")
    assert tower_of(named) == tmp_path / "out" / "mmproj-some.gguf" and tower_of(named).exists()
    assert str(named).count("\n") == 1 + len(named.notes) + len(named.vision.notes if named.vision else ())


def test_the_tower_can_be_left_out(checkpoint: Make, tmp_path: Path) -> None:
    folder = checkpoint("qwen35-vl")
    report = convert(folder, tmp_path / "x.gguf", vision=False)
    assert report.vision is None and list(tmp_path.glob("*.gguf")) == [tmp_path / "x.gguf"]
    assert any("left out: no part of the language model itself" in note for note in report.notes)
    assert not any("left out" in note for note in convert(folder, tmp_path / "y.gguf").notes)
    assert plan(folder, vocab_only=True).vision is None


def test_a_text_model_of_such_a_class(checkpoint: Make, tmp_path: Path) -> None:
    """Fine-tuned models of texts often keep the class, without the tower."""
    folder = checkpoint("qwen35-vl")
    path = folder / "model.safetensors"
    save_file({name: x for name, x in load_file(path).items() if "visual" not in name}, path)
    report = convert(folder, tmp_path / "x.gguf")
    assert report.vision is None and not any("left out" in note for note in report.notes)


def test_nothing_is_left_of_a_failed_conversion(checkpoint: Make, tmp_path: Path) -> None:
    folder = checkpoint("qwen35-vl")
    tensors = load_file(folder / "model.safetensors")
    tensors["model.visual.merger.norm.bias"][3] = np.nan
    save_file(tensors, folder / "model.safetensors")
    with pytest.raises(CheckpointError, match="holds NaN"):
        convert(folder, tmp_path / "x.gguf")
    assert not list(tmp_path.glob("*.gguf*"))


def test_a_tower_of_another_checkpoint_is_found(checkpoint: Make, tmp_path: Path) -> None:
    folder = checkpoint("qwen35-vl")
    output = tower_of(convert(folder, tmp_path / "x.gguf"))
    with pytest.raises(UnsupportedError, match="LlamaForCausalLM has no vision tower"):
        other = tmp_path / "other"
        shutil.copytree(folder, other)
        config = json.loads((other / "config.json").read_text())
        (other / "config.json").write_text(json.dumps({**config, "architectures": ["LlamaForCausalLM"]}))
        verify(other, output)
