"""GigaChat 3.5: files with a part of a head that guesses tokens ahead, and files without a gate."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from random_models import random_model

from hybrid.infer import LoadedModel
from hybrid.quant.ggml.errors import FormatError
from hybrid.quant.ggml.reader import GGUFFile
from hybrid.quant.ggml.writer import GGUFWriter

IDS = np.random.default_rng(2).integers(0, 2000, 40).tolist()
N_LAYER = 4
HEADS = {
    "block_count": N_LAYER + 1, "nextn_predict_layers": 1, "swiglu_clamp_exp": [0.9] * 5,
    "swiglu_clamp_shexp": [0.9] * 5, "attention.recurrent_layers": [True, False, True, False, False],
}  # fmt: skip


def edited(path: Path, keys: dict[str, Any], more: Sequence[str] = (), without: str = "") -> Path:
    """The random model with other keys, with further tensors, or without one."""
    keys = {f"gigachat35.{key}": value for key, value in keys.items()}
    some = np.ones((3, 16), np.float32)
    with GGUFFile.open(random_model("gigachat35")) as file, GGUFWriter(path, None) as writer:
        kept = [name for name in file.tensors if name != without]
        for key, value in {**dict(file.metadata.items()), **keys}.items():
            writer.add(key, value, None if key in keys else file.value_types[key])
        for name in kept:
            writer.declare(name, file.tensors[name].shape, file.tensors[name].type)
        for name in more:
            writer.declare(name, some.shape, file.tensors["output_norm.weight"].type)
        for name in kept:
            writer.write(name, file.raw(name))
        for name in more:
            writer.write(name, some)
    return path


def logits(path: Path) -> np.ndarray:
    with LoadedModel.load(path, n_ctx=64, n_threads=1, precision="exact") as model:
        return model.sequence().logits_of(IDS)


def test_parts_of_a_head_are_not_run(tmp_path: Path) -> None:
    names = [f"blk.{N_LAYER}.{name}.weight" for name in ("nextn.enorm_gate_up", "attn_gate")]
    path = edited(tmp_path / "m.gguf", HEADS, names)
    assert np.array_equal(logits(path), logits(random_model("gigachat35")))


@pytest.mark.parametrize("name", ["output_norm_gate_up", "blk.0.attn_norm_gate_down", "blk.1.attn_kv_a_norm_gate_up"])
def test_a_gate_is_missing(name: str, tmp_path: Path) -> None:
    path = edited(tmp_path / "m.gguf", {}, without=f"{name}.weight")
    with pytest.raises(FormatError, match=rf"m\.gguf.*{name}\.weight"):
        logits(path)
