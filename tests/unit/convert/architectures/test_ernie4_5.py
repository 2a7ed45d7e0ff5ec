"""ERNIE 4.5's head that guesses tokens ahead: a layer without experts, followed by the model's norm."""

from pathlib import Path

import numpy as np
import pytest
import random_checkpoints
import random_heads
from safetensors.numpy import load_file, save_file

from hybrid.convert import convert
from hybrid.infer.engine.layer_facts import layer_facts
from hybrid.quant.ggml.reader import GGUFFile

OF_BLOCK = {
    "attn_norm", "attn_q", "attn_k", "attn_v", "attn_output", "ffn_norm", "ffn_gate", "ffn_up", "ffn_down",
    "nextn.eh_proj", "nextn.enorm", "nextn.hnorm",
}  # fmt: skip


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return random_heads.write("ernie4_5-moe-mtp", tmp_path / "model")


def converted(folder: Path, data_dir: Path, *, heads: bool = True) -> tuple[Path, tuple[str, ...]]:
    """The file and the notes."""
    path = folder.parent / f"{folder.name}-{heads}.gguf"
    tokenizer = data_dir / "checkpoints" / "mamba-bf16"
    return path, convert(folder, path, outtype="f32", tokenizer=tokenizer, heads=heads).notes


def test_it_is_a_block_without_experts(folder: Path, data_dir: Path) -> None:
    path, notes = converted(folder, data_dir)
    assert not any("left out" in note for note in notes)
    assert any("llama.cpp cannot load this file: in this architecture it knows no heads" in note for note in notes)
    with GGUFFile.open(path) as file:
        names = [name.removeprefix("blk.3.").rsplit(".", 1)[0] for name in file.tensors if name.startswith("blk.3.")]
        assert set(names) == OF_BLOCK and len(names) == len(OF_BLOCK)
        keys = {name: file.get(f"ernie4_5-moe.{name}") for name in ("block_count", "nextn_predict_layers")}
        assert keys == {"block_count": 4, "nextn_predict_layers": 1}
        assert [layer.letters for layer in layer_facts(file)] == ["A", "AE", "AE", "AT"]


@pytest.mark.parametrize("without", ["asked", "experts"])
def test_it_is_left_out(without: str, folder: Path, data_dir: Path) -> None:
    """On request, and as a whole if its feed-forward part is different."""
    tensors = load_file(folder / "model.safetensors")
    if without == "experts":
        tensors = {name.replace("mtp_block.0.mlp.", "mtp_block.0.mlp.experts.0."): x for name, x in tensors.items()}
        save_file(tensors, folder / "model.safetensors")
    ahead, notes = converted(folder, data_dir, heads=without != "asked")
    assert any("model.mtp_" in note and "left out" in note for note in notes)
    assert not any("llama.cpp" in note for note in notes)
    config = random_checkpoints.CONFIGS["ernie4_5-moe"]
    plain = random_checkpoints.write(config, folder.parent / "plain" / folder.name)
    save_file({name: x for name, x in tensors.items() if ".mtp_" not in name}, plain / "model.safetensors")
    assert ahead.read_bytes() == converted(plain, data_dir)[0].read_bytes()


def test_of_several_the_first_is_kept(folder: Path, data_dir: Path) -> None:
    one, _ = converted(folder, data_dir)
    kept, tensors = one.read_bytes(), load_file(folder / "model.safetensors")
    more = {name.replace(".0.", ".1.", 1): x + np.float32(1) for name, x in tensors.items() if ".mtp_" in name}
    save_file({**tensors, **more}, folder / "model.safetensors")
    again, notes = converted(folder, data_dir)
    assert again.read_bytes() == kept and any(".1." in note and "left out" in note for note in notes)
