"""The text model of Muse Glimmer in a checkpoint with its tower."""

import json
from pathlib import Path

import numpy as np
import random_checkpoints
from random_checkpoints import CONFIGS
from safetensors.numpy import load_file, save_file

from hybrid.convert import convert
from hybrid.quant.ggml.reader import GGUFFile


def test_the_text_of_a_model_with_pictures(tmp_path: Path, data_dir: Path) -> None:
    """Its tensors equal the text model's; the tower and its projection are left out by name."""
    plain, folder = random_checkpoints.write(CONFIGS["muse-glimmer"], tmp_path / "plain"), tmp_path / "pictures"
    folder.mkdir()
    text = load_file(plain / "model.safetensors")
    tower = {f"model.vision_{part}.weight": np.ones((3, 3), np.float32) for part in ("tower.x", "adapter.fc1")}
    named = {name.replace("model.", "model.language_model.", 1): values for name, values in text.items()}
    save_file({**named, **tower}, folder / "model.safetensors")
    config = json.loads((plain / "config.json").read_text())
    outer = {"architectures": config.pop("architectures"), "tie_word_embeddings": config["tie_word_embeddings"]}
    (folder / "config.json").write_text(json.dumps({**outer, "vision_config": {}, "text_config": config}))
    tokenizer = data_dir / "checkpoints" / "mamba-bf16"
    convert(plain, tmp_path / "plain.gguf", tokenizer=tokenizer)
    report = convert(folder, tmp_path / "pictures.gguf", tokenizer=tokenizer)
    assert any("model.vision_adapter.fc1.weight" in note and "left out" in note for note in report.notes)
    with GGUFFile.open(tmp_path / "plain.gguf") as a, GGUFFile.open(tmp_path / "pictures.gguf") as b:
        assert a.tensors.keys() == b.tensors.keys()
        assert all(a.raw(name).tobytes() == b.raw(name).tobytes() for name in a.tensors)
