"""Ministral 3 and Mistral Small 3.1: the text model of a model with pictures, and keys about its queries."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import random_checkpoints
from random_checkpoints import CONFIGS
from safetensors.numpy import load_file, save_file

from hybrid.convert import convert, verify
from hybrid.convert.architectures import Family
from hybrid.quant.ggml.errors import UnsupportedError
from hybrid.quant.ggml.reader import GGUFFile
from hybrid.quant.ggml.types import FileType

TEXT = {key: value for key, value in CONFIGS["ministral3"].items() if key != "architectures"}
SCALE, LOG = "attention.temperature_scale", "rope.scaling.yarn_log_multiplier"
PICTURES = {"architectures": ["Mistral3ForConditionalGeneration"], "vision_config": {"hidden_size": 7}}
FILE = "model.safetensors"


def family(**change: Any) -> Family:
    return random_checkpoints.family_for(
        {"vocab_size": 8, "max_position_embeddings": 512, **CONFIGS["ministral3"], **change}
    )


def with_pictures(model_type: str, **more: Any) -> Family:
    text = {"model_type": model_type, "vocab_size": 8, **TEXT, **more}
    return random_checkpoints.family_for({**PICTURES, "text_config": text})


def keys(model: Family) -> dict[str, Any]:
    return dict(model.keys(FileType.F32))


def test_keys_of_the_queries() -> None:
    written = keys(family())
    assert (written[SCALE], written["rope.scaling.original_context_length"]) == (0.4, 16)
    assert written[LOG] == 0.6
    assert "rope.scaling.attn_factor" not in written  # mscale is 1
    assert (written["rope.scaling.yarn_beta_fast"], written["rope.scaling.yarn_beta_slow"]) == (9.0, 2.5)
    assert list(family().notes()) == []  # llama.cpp reads all of these here


def test_queries_that_grow_without_yarn() -> None:
    rope = {"rope_type": "default", "llama_4_scaling_beta": 0.2, "original_max_position_embeddings": 32}
    written = keys(family(rope_parameters=rope))
    assert (written[SCALE], written["rope.scaling.original_context_length"]) == (0.2, 32)


def test_another_mscale_is_a_factor_of_cos_and_sin() -> None:
    rope = {**TEXT["rope_parameters"], "mscale": 1.7}
    ratio = keys(family(rope_parameters=rope))["rope.scaling.attn_factor"]
    assert ratio == pytest.approx((0.17 * np.log(4) + 1) / (0.1 * np.log(4) + 1))


def test_mistral_small_has_no_such_keys() -> None:
    plain = {"rope_parameters": {"rope_type": "default", "rope_theta": 1e9}}
    written = keys(with_pictures("mistral", **plain))
    assert SCALE not in written
    assert written["context_length"] == 131072
    assert written["hybrid.attention.sliding_window"] == 4096  # the default
    assert "hybrid.attention.sliding_window" not in keys(with_pictures("mistral", sliding_window=None, **plain))
    assert SCALE in keys(with_pictures("ministral3"))


def test_the_text_of_mistral_small_4() -> None:
    text = {"vocab_size": 8, "max_position_embeddings": 512, **CONFIGS["mistral4"], "model_type": "mistral4"}
    model = random_checkpoints.family_for({**PICTURES, "text_config": text})
    assert model.arch == "mistral4" and model.canonical("model.language_model.norm.weight") == "model.norm.weight"
    alone = random_checkpoints.family_for({**text, "tie_word_embeddings": True})  # as Mistral 3 where none says it
    assert keys(model) == keys(alone) and [one.target for one in model.rows()] == [one.target for one in alone.rows()]


def test_other_texts_are_refused() -> None:
    with pytest.raises(UnsupportedError, match='text_config: model_type = "mistral5" is not supported, only "minist'):
        with_pictures("mistral5")


@pytest.mark.parametrize("before", ["language_model.model.", "model.language_model."])
def test_the_text_of_a_model_with_pictures(before: str, tmp_path: Path, data_dir: Path) -> None:
    """Its tensors equal the text model's; towers are left out by name."""
    plain = random_checkpoints.write(CONFIGS["ministral3"], tmp_path / "plain")
    folder = tmp_path / "pictures"
    folder.mkdir()
    head = "language_model.lm_head." if before.startswith("language") else "lm_head."
    tensors = {
        name.replace("lm_head.", head) if name.startswith("lm_head.") else name.replace("model.", before, 1): values
        for name, values in load_file(plain / FILE).items()
    }
    tower = "vision_tower.patch.weight" if before.startswith("language") else "model.vision_tower.patch.weight"
    save_file({**tensors, tower: np.ones((3, 3), np.float32)}, folder / FILE)
    config = json.loads((plain / "config.json").read_text())
    text = {"model_type": "ministral3", **{key: value for key, value in config.items() if key != "architectures"}}
    (folder / "config.json").write_text(json.dumps({**PICTURES, "tie_word_embeddings": False, "text_config": text}))
    tokenizer = data_dir / "checkpoints" / "mamba-bf16"
    convert(plain, tmp_path / "plain.gguf", tokenizer=tokenizer)
    report = convert(folder, tmp_path / "pictures.gguf", tokenizer=tokenizer)
    assert f"tensor {tower} left out: no part of the language model itself" in report.notes
    verify(folder, tmp_path / "pictures.gguf")
    with GGUFFile.open(tmp_path / "plain.gguf") as a, GGUFFile.open(tmp_path / "pictures.gguf") as b:
        assert a.tensors.keys() == b.tensors.keys()
        assert all(a.raw(name).tobytes() == b.raw(name).tobytes() for name in a.tensors)
