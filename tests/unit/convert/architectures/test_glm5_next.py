"""GLM-5.3-Flash's head that guesses tokens ahead: numbered after the layers, without hyper-connections."""

from pathlib import Path

import pytest
import random_checkpoints
import random_heads
from safetensors.numpy import load_file, save_file

from hybrid.convert import convert
from hybrid.infer.engine.layer_facts import layer_facts
from hybrid.quant.ggml.reader import GGUFFile

NAME, N_LAYER = "glm5-next-plain-mtp", 4
OF_BLOCK = {
    "attn_norm", "attn_q_a", "attn_q_a_norm", "attn_q_b", "attn_kv_a_mqa", "attn_kv_a_norm", "attn_k_b", "attn_v_b",
    "attn_output", "indexer.attn_q_b", "indexer.attn_k", "indexer.k_norm", "indexer.proj", "indexer_compressor_gate",
    "indexer_compressor_ape", "ffn_norm", "ffn_gate_inp", "exp_probs_b", "ffn_gate_exps", "ffn_up_exps",
    "ffn_down_exps", "ffn_gate_shexp", "ffn_up_shexp", "ffn_down_shexp", "nextn.eh_proj", "nextn.enorm", "nextn.hnorm",
    "nextn.shared_head_norm", "nextn.embed_tokens", "nextn.shared_head_head",
}  # fmt: skip


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The published form: the text model inside a model with pictures."""
    folder = random_heads.write(NAME, tmp_path / "model")
    tensors = load_file(folder / "model.safetensors")
    names = {name: name.replace("model.", "model.language_model.", 1) for name in tensors}
    save_file({names[name]: x for name, x in tensors.items()}, folder / "model.safetensors")
    return folder


def converted(folder: Path, data_dir: Path, *, heads: bool = True) -> tuple[Path, tuple[str, ...]]:
    """The file and the notes."""
    path = folder.parent / f"{folder.name}-{heads}.gguf"
    tokenizer = data_dir / "checkpoints" / "mamba-bf16"
    return path, convert(folder, path, outtype="f32", tokenizer=tokenizer, heads=heads).notes


def test_it_is_a_block_on_one_stream(folder: Path, data_dir: Path) -> None:
    path, notes = converted(folder, data_dir)
    assert not any("left out" in note for note in notes)
    with GGUFFile.open(path) as file:
        own = f"blk.{N_LAYER}."
        names = {name.removeprefix(own).rsplit(".", 1)[0] for name in file.tensors if name.startswith(own)}
        assert names == OF_BLOCK
        keys = {name: file.get(f"glm5-next.{name}") for name in ("block_count", "nextn_predict_layers")}
        assert keys == {"block_count": N_LAYER + 1, "nextn_predict_layers": 1}
        per_layer = "attention.head_count_kv", "attention.indexer.types", "swiglu_clamp_exp", "swiglu_clamp_shexp"
        assert [len(file.get(f"glm5-next.{name}")) for name in per_layer] == [5, 4, 5, 5]
        assert file.get("glm5-next.attention.head_count_kv").tolist()[-1] == 1
        facts = layer_facts(file)
    assert facts[-1].letters == "AET" and facts[-1].state_nbytes == 0 < facts[-1].kv_nbytes_per_token


def test_it_is_left_out_where_that_is_asked(folder: Path, data_dir: Path) -> None:
    ahead, notes = converted(folder, data_dir, heads=False)
    assert any(f"model.language_model.layers.{N_LAYER}." in note and "left out" in note for note in notes)
    plain = random_checkpoints.write(random_heads.WITH_HEADS[NAME][0], folder.parent / "plain" / folder.name)
    tensors = load_file(folder / "model.safetensors")
    without = {name: x for name, x in tensors.items() if f".layers.{N_LAYER}." not in name}
    save_file(without, plain / "model.safetensors")
    assert ahead.read_bytes() == converted(plain, data_dir)[0].read_bytes()
