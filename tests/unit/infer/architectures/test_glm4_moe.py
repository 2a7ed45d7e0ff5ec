"""Layers of GLM-4.5 that guess tokens ahead: left out by `convert`, and not run where llama.cpp's files have them."""

from pathlib import Path

import numpy as np
import random_checkpoints
from random_checkpoints import CONFIGS
from safetensors.numpy import load_file, save_file

from hybrid.convert import convert
from hybrid.infer import Model
from hybrid.quant.ggml.reader import GGUFFile
from hybrid.quant.ggml.types import GGMLType
from hybrid.quant.ggml.writer import GGUFWriter

IDS = [5, 900, 17, 44, 1201]


def converted(folder: Path, path: Path, data_dir: Path) -> list[str]:
    """The notes."""
    return convert(folder, path, outtype="f32", tokenizer=data_dir / "checkpoints" / "mamba-bf16").notes


def logits(path: Path) -> np.ndarray:
    with Model.load(path, n_ctx=32) as model:
        return model.sequence().logits_of(IDS)


def test_they_are_left_out_of_the_file(data_dir: Path, tmp_path: Path) -> None:
    folder = random_checkpoints.write(CONFIGS["glm4-moe"], tmp_path / "model")
    converted(folder, tmp_path / "plain.gguf", data_dir)
    tensors = load_file(folder / "model.safetensors")
    ahead = {name.replace("layers.1.", "layers.3."): x for name, x in tensors.items() if "layers.1." in name}
    ahead["model.layers.3.eh_proj.weight"] = np.zeros((96, 192), np.float32)
    save_file({**tensors, **ahead}, folder / "model.safetensors")
    notes = converted(folder, tmp_path / "ahead.gguf", data_dir)
    assert any("model.layers.3." in note and "left out" in note for note in notes)
    assert (tmp_path / "ahead.gguf").read_bytes() == (tmp_path / "plain.gguf").read_bytes()


def test_they_are_not_run(data_dir: Path, tmp_path: Path) -> None:
    folder = random_checkpoints.write(CONFIGS["glm4-moe"], tmp_path / "model")
    plain, kept = tmp_path / "plain.gguf", tmp_path / "kept.gguf"
    converted(folder, plain, data_dir)
    more = {"glm4moe.block_count": (4, None), "glm4moe.nextn_predict_layers": (1, None)}
    name, shape = "blk.3.nextn.eh_proj.weight", (96, 192)
    with GGUFFile.open(plain) as file, GGUFWriter(kept, None) as writer:
        for key, value in file.metadata.items():
            writer.add(key, *more.pop(key, (value, file.value_types[key])))
        for key, (number, kind) in more.items():
            writer.add(key, number, kind)
        for tensor in file.tensors.values():
            writer.declare(tensor.name, tensor.shape, tensor.type)
        writer.declare(name, shape, GGMLType.F32)
        for tensor in file.tensors.values():
            writer.write(tensor.name, file.raw(tensor.name))
        writer.write(name, np.ones(shape, np.float32))
    assert logits(kept).tobytes() == logits(plain).tobytes()
