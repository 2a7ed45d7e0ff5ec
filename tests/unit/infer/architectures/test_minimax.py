"""MiniMax-01 in files of llama.cpp's converter, and in damaged files."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import random_checkpoints
from random_checkpoints import CONFIGS

from hybrid.convert import convert
from hybrid.convert.architectures.minimax import MiniMax
from hybrid.infer import LoadedModel
from hybrid.quant.ggml.errors import FormatError
from hybrid.quant.ggml.types import FileType

KEYS = MiniMax.keys


def logits(
    folder: Path, data_dir: Path, monkeypatch: pytest.MonkeyPatch, model: str = "minimax-text-01", **change: Any
) -> np.ndarray:
    """Logits of a random model with changed keys; keys that are None are left out."""

    def keys(self: MiniMax, file_type: FileType) -> Iterator[tuple[str, Any]]:
        for name, value in KEYS(self, file_type):
            if (value := change.get(name, value)) is not None:
                yield name, value

    monkeypatch.setattr(MiniMax, "keys", keys)
    folder.mkdir(exist_ok=True)
    source = random_checkpoints.write(CONFIGS[model], folder / "model")
    convert(source, folder / "m.gguf", outtype="f32", tokenizer=data_dir / "checkpoints" / "mamba-bf16")
    with LoadedModel.load(folder / "m.gguf", n_ctx=32) as loaded:
        return loaded.sequence().logits_of(list(range(260, 280)))


def test_keys_that_only_we_write(tmp_path: Path, data_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the keys, tensors tell the kinds of layers, and the inner norm has the other norms' epsilon."""
    own = "hybrid.lightning.norm_rms_epsilon"
    ours = logits(tmp_path / "ours", data_dir, monkeypatch)
    order = {"attention.recurrent_layers": None}
    told, untold = (
        logits(tmp_path / name, data_dir, monkeypatch, "minimax-scaled", **change)
        for name, change in (("told", {}), ("untold", order))
    )
    without = logits(tmp_path / "without", data_dir, monkeypatch, **{own: None})
    stated = logits(tmp_path / "stated", data_dir, monkeypatch, **{own: 1e-5})
    assert told.tobytes() == untold.tobytes()
    assert without.tobytes() == stated.tobytes() != ours.tobytes()


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("residual_scale", 0.0, r"residual_scale = 0.0, expected a positive number"),
        ("residual_scale", None, r"minimax-01.residual_scale"),
        ("rope.dimension_count", 26, r"rope.dimension_count = 26, expected an even number of the 24 values"),
        ("attention.key_length", 16, r"has shape"),
        ("expert_used_count", 4, r"expert_used_count = 4, expected 1 to 3"),
    ],
)
def test_errors(
    key: str, value: Any, message: str, tmp_path: Path, data_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(FormatError, match=message):
        logits(tmp_path, data_dir, monkeypatch, **{key: value})
