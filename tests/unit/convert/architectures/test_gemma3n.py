"""Gemma 3n: its config, how llama.cpp runs the file, and extra keys of published checkpoints."""

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import random_checkpoints
from random_checkpoints import CONFIGS, N_VOCAB
from safetensors.numpy import load_file, save_file

from hybrid.convert import convert, verify
from hybrid.convert.architectures import Family
from hybrid.infer import LoadedModel
from hybrid.infer.engine.network import Network
from hybrid.quant.ggml.errors import FormatError
from hybrid.quant.ggml.reader import GGUFFile
from hybrid.quant.ggml.types import FileType

FILE = "model.safetensors"
SPARSITY = "gemma3n.activation_sparsity_scale"


def family(**change: Any) -> Family:
    config = {"vocab_size": N_VOCAB, "max_position_embeddings": 512, **CONFIGS["gemma3n"], **change}
    return random_checkpoints.family_for({key: value for key, value in config.items() if value is not ...})


def published(**change: Any) -> Family:
    """E4B with the settings that its config states."""
    sizes = {"hidden_size": 2048, "intermediate_size": [16384] * 35, "num_hidden_layers": 35}
    texts = {"vocab_size": 262400, "max_position_embeddings": 32768, "architectures": ["Gemma3nForCausalLM"]}
    return random_checkpoints.family_for({**sizes, **texts, **change})


def test_what_absent_fields_mean() -> None:
    keys = dict(published().keys(FileType.F32))
    assert keys["attention.sliding_window_pattern"] == ([True] * 4 + [False]) * 7
    assert keys["activation_sparsity_scale"] == [pytest.approx(1.6448536)] * 10 + [-math.inf] * 25
    assert (keys["attention.shared_kv_layers"], keys["altup.num_inputs"], keys["altup.active_idx"]) == (15, 4, 0)
    assert (keys["rope.freq_base"], keys["rope.freq_base_swa"]) == (1e6, 1e4)
    assert keys["final_logit_softcapping"] == 30.0
    assert "final_logit_softcapping" not in dict(published(final_logit_softcapping=None).keys(FileType.F32))


def test_notes() -> None:
    (unused, tokens) = published().notes()
    assert "keys and values of their own that it does not use" in unused
    assert tokens.startswith("tokens from 262144 on, of pictures and sounds")
    notes = " ".join(family().notes())
    assert "hidden_size_per_layer_input = 256 and laurel_rank = 64" in notes
    assert "of all layers from the 21th on" in notes
    assert "the first 10 layers to be sparse" in notes
    assert "altup_num_inputs = 4" in " ".join(family(altup_num_inputs=3).notes())
    assert "more rows than tokens" in " ".join(published(vocab_size_per_layer_input=300000).notes())
    assert "of which the first has a window" in " ".join(published(num_kv_shared_layers=14).notes())


def test_tokens_without_embeddings_for_layers(tmp_path: Path, data_dir: Path) -> None:
    """Their rows are zeros, in the middle of a slice and after one."""
    folder = random_checkpoints.write({**CONFIGS["gemma3n"], "vocab_size_per_layer_input": N_VOCAB - 6}, tmp_path / "m")
    for kind in ("f32", "f16"):
        path = tmp_path / f"{kind}.gguf"
        report = convert(folder, path, outtype=kind, tokenizer=data_dir / "checkpoints" / "mamba-bf16")
        assert any(note.startswith(f"tokens from {N_VOCAB - 6} on") for note in report.notes)
        verify(folder, path)
        with GGUFFile.open(path) as file:
            table = file.f32("per_layer_token_embd.weight")
            assert table.shape == (N_VOCAB, 7 * 20)
            assert not table[-6:].any()
            assert table[-7].any()


def test_published_checkpoints_have_keys_that_no_layer_uses(tmp_path: Path, data_dir: Path) -> None:
    """They stay in the file, for llama.cpp; results do not depend on them."""
    folder = random_checkpoints.write(CONFIGS["gemma3n"], tmp_path / "model")
    tokenizer = data_dir / "checkpoints" / "mamba-bf16"
    tensors, more = load_file(folder / FILE), tmp_path / "more"
    rng = np.random.default_rng(1)
    for i in (4, 5, 6):
        p = f"model.layers.{i}.self_attn."
        for name, shape in (("k_proj", (20, 96)), ("v_proj", (20, 96)), ("k_norm", (10,))):
            tensors[f"{p}{name}.weight"] = rng.standard_normal(shape).astype(np.float32)
    more.mkdir()
    outer = {"language_model." + name: values for name, values in tensors.items()}
    save_file(
        {name.replace("language_model.model", "model.language_model"): v for name, v in outer.items()}, more / FILE
    )
    text = json.loads((folder / "config.json").read_text())
    del text["architectures"]
    config = {"architectures": ["Gemma3nForConditionalGeneration"], "model_type": "gemma3n", "text_config": text}
    (more / "config.json").write_text(json.dumps(config))
    results = []
    for source in (folder, more):
        path = tmp_path / f"{source.name}.gguf"
        convert(source, path, outtype="f32", tokenizer=tokenizer)
        verify(source, path)
        with GGUFFile.open(path) as file:
            assert ("blk.6.attn_k.weight" in file.tensors) == (source is more)
        with LoadedModel.load(path, n_ctx=64) as model:
            results.append(model.sequence().logits_of(list(range(260, 290))))
    assert results[0].tobytes() == results[1].tobytes()


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        (SPARSITY, np.array([1.0, np.nan] * 3 + [0], np.float32), "expected 7 numbers, or -inf"),
        (SPARSITY, np.array([np.inf] * 7, np.float32), "expected 7 numbers"),
        (SPARSITY, np.zeros(6, np.float32), "expected 7 numbers"),
        (SPARSITY, "no", "expected 7 numbers"),
        ("gemma3n.altup.active_idx", 4, "altup.active_idx = 4, expected less than altup.num_inputs = 4"),
        ("gemma3n.altup.num_inputs", 1, "altup.num_inputs = 1, expected 2 to 64"),
        ("gemma3n.attention.shared_kv_layers", 6, "attention.shared_kv_layers = 6, expected before layer 1 one"),
    ],
)
def test_damaged_files(key: str, value: Any, message: str, tmp_path: Path, data_dir: Path) -> None:
    folder = random_checkpoints.write(CONFIGS["gemma3n"], tmp_path / "model")
    path = tmp_path / "model.gguf"
    convert(folder, path, outtype="f32", tokenizer=data_dir / "checkpoints" / "mamba-bf16")
    with GGUFFile.open(path) as file:
        file.metadata = {**file.metadata, key: value}
        with pytest.raises(FormatError, match=message):
            Network(file, 4)
