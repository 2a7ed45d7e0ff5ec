"""Nemotron 3's head that guesses tokens ahead: two of its layers become one block of the file."""

from pathlib import Path

import numpy as np
import pytest
import random_checkpoints
import random_heads
from safetensors.numpy import load_file, save_file

from hybrid.convert import convert
from hybrid.infer.engine.layer_facts import layer_facts
from hybrid.quant.ggml.reader import GGUFFile

NAME = "nemotron-h-moe-mtp"
OF_BLOCK = {
    "attn_norm", "attn_q", "attn_k", "attn_v", "attn_output", "post_attention_norm", "ffn_gate_inp", "exp_probs_b",
    "ffn_up_exps", "ffn_down_exps", "ffn_up_shexp", "ffn_down_shexp", "nextn.eh_proj", "nextn.enorm", "nextn.hnorm",
    "nextn.shared_head_norm",
}  # fmt: skip


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return random_heads.write(NAME, tmp_path / "model")


def converted(folder: Path, data_dir: Path, *, heads: bool = True) -> tuple[Path, tuple[str, ...]]:
    """The file and the notes."""
    path = folder.parent / f"{folder.name}-{heads}.gguf"
    tokenizer = data_dir / "checkpoints" / "mamba-bf16"
    return path, convert(folder, path, outtype="f32", tokenizer=tokenizer, heads=heads).notes


def test_it_is_a_block_with_attention_and_experts(folder: Path, data_dir: Path) -> None:
    path, notes = converted(folder, data_dir)
    assert not any("left out" in note for note in notes)
    with GGUFFile.open(path) as file:
        names = [name.removeprefix("blk.5.").rsplit(".", 1)[0] for name in file.tensors if name.startswith("blk.5.")]
        assert set(names) == OF_BLOCK and len(names) == len(OF_BLOCK)
        keys = {name: file.get(f"nemotron_h_moe.{name}") for name in ("block_count", "nextn_predict_layers")}
        assert keys == {"block_count": 6, "nextn_predict_layers": 1}
        assert file.get("nemotron_h_moe.attention.head_count_kv").tolist() == [0, 0, 0, 1, 0, 1]
        assert file.get("nemotron_h_moe.feed_forward_length").tolist() == [0, 64, 0, 0, 64, 64]
        facts = layer_facts(file)
    assert [layer.letters for layer in facts] == ["M", "E", "M", "A", "E", "AET"]
    assert facts[5].kv_nbytes_per_token == facts[3].kv_nbytes_per_token > 0


@pytest.mark.parametrize("without", ["asked", "another layer"])
def test_it_is_left_out(without: str, folder: Path, data_dir: Path) -> None:
    """On request, and as a whole if its layers differ from published heads."""
    if without == "another layer":
        path = folder / "model.safetensors"
        other = {name.replace("mtp.layers.1.mixer.gate.", "mtp.layers.1.in."): x for name, x in load_file(path).items()}
        save_file(other, path)
    ahead, notes = converted(folder, data_dir, heads=without != "asked")
    assert any("mtp.layers." in note and "left out" in note for note in notes)
    plain = random_checkpoints.write(
        random_checkpoints.CONFIGS["nemotron-h-moe"], folder.parent / "plain" / folder.name
    )
    tensors = load_file(folder / "model.safetensors")
    save_file({name: x for name, x in tensors.items() if not name.startswith("mtp.")}, plain / "model.safetensors")
    assert ahead.read_bytes() == converted(plain, data_dir)[0].read_bytes()


def test_of_several_the_first_is_kept(folder: Path, data_dir: Path) -> None:
    one, _ = converted(folder, data_dir)
    path = folder / "model.safetensors"
    kept, tensors = one.read_bytes(), load_file(path)
    more = {name.replace("layers.0.", "layers.2."): x + np.float32(1) for name, x in tensors.items() if "mtp." in name}
    save_file({**tensors, **{name: x for name, x in more.items() if "layers.2." in name}}, path)
    again, notes = converted(folder, data_dir)
    assert again.read_bytes() == kept and any("mtp.layers.2." in note and "left out" in note for note in notes)
