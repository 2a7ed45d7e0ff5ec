"""PLaMo 2 in files of llama.cpp's converter, and in damaged files."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import random_checkpoints
from random_checkpoints import CONFIGS

from hybrid.convert import convert
from hybrid.convert.architectures.plamo2 import Plamo2
from hybrid.infer import LoadedModel
from hybrid.quant.ggml.errors import FormatError
from hybrid.quant.ggml.types import FileType

KEYS = Plamo2.keys


def written(folder: Path, data_dir: Path, monkeypatch: pytest.MonkeyPatch, **change: Any) -> Path:
    """A random model with changed keys; a double underscore stands for a dot."""
    changed = {name.replace("__", "."): value for name, value in change.items()}

    def keys(self: Plamo2, file_type: FileType) -> Iterator[tuple[str, Any]]:
        yield from ((name, changed.get(name, value)) for name, value in KEYS(self, file_type))

    monkeypatch.setattr(Plamo2, "keys", keys)
    source = random_checkpoints.write(CONFIGS["plamo2"], folder / "model")
    convert(source, folder / "m.gguf", outtype="f32", tokenizer=data_dir / "checkpoints" / "mamba-bf16")
    return folder / "m.gguf"


def logits(path: Path) -> np.ndarray:
    with LoadedModel.load(path, n_ctx=32) as model:
        return model.sequence().logits_of(list(range(260, 280)))


def test_heads_of_each_layer(tmp_path: Path, data_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("ours", "theirs"):
        (tmp_path / name).mkdir()
    ours = logits(written(tmp_path / "ours", data_dir, monkeypatch))
    theirs = logits(written(tmp_path / "theirs", data_dir, monkeypatch, attention__head_count=[0, 5, 0, 5, 0]))
    assert ours.tobytes() == theirs.tobytes()
    assert np.isfinite(ours).all()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"attention__head_count": [0, 5, 0, 0, 0]}, r"attention.head_count = 0, expected queries on layer 3"),
        ({"ssm__time_step_rank": 5}, r"ssm.time_step_rank = 5, expected a divisor of ssm.inner_size = 168"),
        ({"ssm__state_size": 21}, r"ssm_x.weight has shape"),
    ],
)
def test_errors(
    change: dict[str, Any], message: str, tmp_path: Path, data_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(FormatError, match=message):
        logits(written(tmp_path, data_dir, monkeypatch, **change))
