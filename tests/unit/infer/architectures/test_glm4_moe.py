"""GLM-4.5's heads that guess tokens ahead: `convert` leaves them out on request, and a file with only a part of a head
runs without it."""

from pathlib import Path

import numpy as np
import random_checkpoints
import random_heads
from random_checkpoints import CONFIGS
from safetensors.numpy import load_file, save_file

from hybrid.convert import convert
from hybrid.infer import LoadedModel
from hybrid.quant.ggml.reader import GGUFFile
from hybrid.quant.ggml.types import GGMLType
from hybrid.quant.ggml.writer import GGUFWriter

IDS = [5, 900, 17, 44, 1201]


def converted(folder: Path, path: Path, data_dir: Path, *, heads: bool = True) -> tuple[str, ...]:
    """Convert; return the notes."""
    tokenizer = data_dir / "checkpoints" / "mamba-bf16"
    return convert(folder, path, outtype="f32", tokenizer=tokenizer, heads=heads).notes


def logits(path: Path) -> np.ndarray:
    with LoadedModel.load(path, n_ctx=32) as model:
        return model.sequence().logits_of(IDS)


def test_they_are_left_out_of_the_file(data_dir: Path, tmp_path: Path) -> None:
    folder = random_heads.write("glm4-moe-mtp", tmp_path / "model")
    notes = converted(folder, tmp_path / "ahead.gguf", data_dir, heads=False)
    assert any("model.layers.3." in note and "left out" in note for note in notes)
    tensors = load_file(folder / "model.safetensors")
    save_file({name: x for name, x in tensors.items() if "layers.3." not in name}, folder / "model.safetensors")
    converted(folder, tmp_path / "plain.gguf", data_dir)
    assert (tmp_path / "ahead.gguf").read_bytes() == (tmp_path / "plain.gguf").read_bytes()


def test_parts_of_one_are_not_run(data_dir: Path, tmp_path: Path) -> None:
    folder = random_checkpoints.write(CONFIGS["glm4-moe"], tmp_path / "model")
    plain, kept = tmp_path / "plain.gguf", tmp_path / "kept.gguf"
    converted(folder, plain, data_dir)
    more = {"glm4moe.block_count": (4, None), "glm4moe.nextn_predict_layers": (1, None)}
    name, shape = "blk.3.nextn.enorm.weight", (96,)
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
