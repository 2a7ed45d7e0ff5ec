"""Files of the vision-language checkpoints: every tensor of the tower is the slow twin's, and both files are what the
checkpoint makes."""

import json
from pathlib import Path

import numpy as np
import pytest
from reference import towers

from hybrid.convert import convert, verify
from hybrid.convert.checkpoint import Checkpoint
from hybrid.quant.ggml import formats
from hybrid.quant.ggml.reader import GGUFFile
from hybrid.quant.ggml.types import GGMLType
from hybrid.quant.ggml.vision import picture_settings
from hybrid.quant.ggml.vision.tower import read_tower

NAMES = (
    *("qwen35-vl", "smolvlm", "lfm2-vl", "gemma3-vl", "qwen3-vl", "qwen25-vl", "lfm3-vl", "gemma4-vl"),
    "granite4-vision",
)


def tensors(folder: Path) -> dict[str, np.ndarray]:
    """f32, by the names that the twin uses."""
    found = {}
    for name, tensor in Checkpoint(folder).tensors.items():
        plain = name.replace("vision_tower.vision_model.", "vision_tower.")
        found[plain] = tensor.floats(0, tensor.size).reshape(tensor.shape)
    return found


@pytest.mark.parametrize("name", NAMES)
def test_files(name: str, shared_dir: Path, tmp_path: Path) -> None:
    folder = shared_dir / "checkpoints" / name
    config = json.loads((folder / "config.json").read_text())
    expected = dict(towers.TOWERS[config["architectures"][0]](tensors(folder), config))
    report = convert(folder, tmp_path / "m.gguf", outtype="f32")
    assert report.vision is not None
    assert not [note for note in report.all_notes if "unknown" in note or "left out" in note]
    with GGUFFile.open(report.vision.output) as file:
        assert file.tensors.keys() == expected.keys()
        for target, value in expected.items():
            info = file.tensors[target]
            rows = np.ascontiguousarray(file.raw(target)).reshape(int(np.prod(info.shape[:-1])), -1)
            found = formats.decode(info.type, rows).reshape(info.shape)
            assert np.array_equal(found, value.reshape(info.shape)) and found.size == value.size, target
        assert read_tower(file).n_layer > 2 and picture_settings(file).mistake() == ""
    usual = convert(folder, tmp_path / "n.gguf")
    assert usual.vision is not None
    with GGUFFile.open(usual.vision.output) as file:
        assert {info.type for info in file.tensors.values()} == {GGMLType.F32, GGMLType.F16}
    for output in (usual.output, usual.vision.output):
        assert verify(folder, output).n_tensors > 20
