"""Published Kimi K3: names with a prefix, a tiktoken tokenizer, prompts written by code."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import random_checkpoints
from random_checkpoints import CONFIGS
from safetensors.numpy import load_file, save_file

from hybrid.convert import convert, verify
from hybrid.infer.text.chat_template import ChatTemplate
from hybrid.infer.text.tokenizer import load_tokenizer
from hybrid.quant.ggml.errors import CheckpointError
from hybrid.quant.ggml.reader import GGUFFile

N_VOCAB = 1700


@pytest.fixture
def published(tmp_path: Path, data_dir: Path) -> Path:
    folder = random_checkpoints.write({**CONFIGS["kimi-k3"], "vocab_size": N_VOCAB}, tmp_path / "model")
    shutil.copytree(data_dir / "tokenizers" / "kimi", folder, dirs_exist_ok=True)
    config = json.loads((folder / "config.json").read_text())
    outer = {"architectures": config.pop("architectures"), "eos_token_id": 1402, "vision_config": {"patch_size": 14}}
    (folder / "config.json").write_text(json.dumps({**outer, "text_config": config}))
    tensors = load_file(folder / "model.safetensors")
    for name in [name for name in tensors if name.endswith("_res_proj.weight")]:
        tensors[name] = tensors[name][None]  # a matrix of one row
    renamed = {f"language_model.{name}": values for name, values in tensors.items()}
    save_file({**renamed, "vision_tower.w": np.ones(3, np.float32)}, folder / "model.safetensors")
    return folder


def test_as_published(published: Path, tmp_path: Path) -> None:
    report = convert(published, tmp_path / "m.gguf", outtype="f32")
    assert "tensor vision_tower.w left out: no part of the language model itself" in report.notes
    assert any("has no chat template: code of the repository writes prompts" in note for note in report.notes)
    verify(published, tmp_path / "m.gguf")
    tensors = load_file(published / "model.safetensors")
    with GGUFFile.open(tmp_path / "m.gguf") as file:
        for target, source in (
            ("blk.1.attn_res_score.weight", "layers.1.self_attention_res"),
            ("blk.4.ffn_res_score.weight", "layers.4.mlp_res"),
            ("output_res_score.weight", "output_attn_res"),
        ):
            norm, proj = (tensors[f"language_model.model.{source}_{part}.weight"] for part in ("norm", "proj"))
            np.testing.assert_array_equal(file.f32(target), norm * proj[0])
        tokenizer = load_tokenizer(file)
        # end of turn by config.json; end of document by the tokenizer's files, which also ends an answer
        assert (tokenizer.eos, tokenizer.vocabulary.pre) == (1402, "kimi-k2")
        assert tokenizer.eog >= {1401, 1402}
        assert ChatTemplate.from_gguf(file, tokenizer) is None


def test_a_template_of_its_own_counts(published: Path, tmp_path: Path) -> None:
    (published / "chat_template.jinja").write_text("{{ messages[0].content }}")
    assert not any("chat template" in note for note in convert(published, tmp_path / "m.gguf", vocab_only=True).notes)
    with GGUFFile.open(tmp_path / "m.gguf") as file:
        assert file.get("tokenizer.chat_template") == "{{ messages[0].content }}"


def test_a_factor_of_another_size(published: Path, tmp_path: Path) -> None:
    tensors = load_file(published / "model.safetensors")
    tensors["language_model.model.layers.1.mlp_res_proj.weight"] = np.ones((1, 95), np.float32)
    save_file(tensors, published / "model.safetensors")
    with pytest.raises(CheckpointError, match=r"layers\.1\.mlp_res_proj\.weight has shape \[1, 95\], expected \[96\]"):
        convert(published, tmp_path / "m.gguf")


def test_a_product_that_overflows(published: Path, tmp_path: Path) -> None:
    tensors = load_file(published / "model.safetensors")
    for part in ("norm", "proj"):
        tensors[f"language_model.model.layers.1.mlp_res_{part}.weight"].reshape(-1)[3] = 1e30
    save_file(tensors, published / "model.safetensors")
    with pytest.raises(CheckpointError, match=r"mlp_res_norm\.weight \* .*mlp_res_proj\.weight holds NaN or infinite"):
        convert(published, tmp_path / "m.gguf")
    assert not (tmp_path / "m.gguf").exists()
