"""Phi-4-mini-flash: what is kept of a text, and damaged files."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import random_checkpoints
from random_checkpoints import CONFIGS
from reference.families import Reference
from safetensors.numpy import load_file, save_file

from hybrid.convert import convert
from hybrid.convert.architectures.phi4flash import Phi4Flash
from hybrid.infer import LoadedModel
from hybrid.infer.memory import AttentionSpec
from hybrid.quant.ggml.errors import FormatError
from hybrid.quant.ggml.types import FileType

KEYS = Phi4Flash.keys
IDS = list(range(260, 280))


def written(folder: Path, data_dir: Path, monkeypatch: pytest.MonkeyPatch, **change: Any) -> Path:
    """A random model with changed keys of attention."""

    def keys(self: Phi4Flash, file_type: FileType) -> Iterator[tuple[str, Any]]:
        yield from ((name, change.get(name.removeprefix("attention."), value)) for name, value in KEYS(self, file_type))

    monkeypatch.setattr(Phi4Flash, "keys", keys)
    return converted(random_checkpoints.write(CONFIGS["phi4flash"], folder / "model"), data_dir)


def converted(source: Path, data_dir: Path) -> Path:
    path = source.parent / "m.gguf"
    convert(source, path, outtype="f32", tokenizer=data_dir / "checkpoints" / "mamba-bf16")
    return path


def logits(path: Path) -> np.ndarray:
    with LoadedModel.load(path, n_ctx=32) as model:
        return model.sequence().logits_of(IDS)


def test_keys_and_values_are_kept_once(tmp_path: Path, data_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Pairs of heads are kept undivided; the last layers keep nothing."""
    with LoadedModel.load(written(tmp_path, data_dir, monkeypatch), n_ctx=32) as model:
        specs = model.engine.network.specs
    attention = [(s.layer, s.n_kv, s.d_head, s.d_value, s.window) for s in specs if isinstance(s, AttentionSpec)]
    assert attention == [(1, 1, 48, 48, 11), (3, 1, 48, 48, 11), (5, 1, 48, 48, 0)]
    assert [s.layer for s in specs if not isinstance(s, AttentionSpec)] == [0, 2, 4]


@pytest.mark.parametrize(
    "part",
    ["1.attn.Wqkv.v.weight", "5.attn.Wqkv.k.weight", "6.attn.in_proj.weight", "7.attn.Wqkv.weight", "7.mlp.fc2.weight"],
)
def test_every_part_counts(part: str, tmp_path: Path) -> None:
    """In the random model compared with the twin, no part's contribution is drowned by the scans."""
    source = random_checkpoints.write(CONFIGS["phi4flash"], tmp_path / "model")
    tensors = load_file(source / "model.safetensors")
    config = json.loads((source / "config.json").read_text())
    expected = Reference(config, tensors).logits(IDS)
    tensors[f"model.layers.{part}"][:] = 0.0
    assert np.abs(Reference(config, tensors).logits(IDS) - expected).max() > 0.05


def test_a_model_without_layers_that_share(tmp_path: Path, data_dir: Path) -> None:
    config = {**CONFIGS["phi4flash"], "num_hidden_layers": 4}
    assert np.isfinite(logits(converted(random_checkpoints.write(config, tmp_path / "model"), data_dir))).all()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"shared_kv_layers": 9}, r"shared_kv_layers = 9, expected a layer of Mamba as the last of its kind"),
        ({"shared_kv_layers": 3}, r"shared_kv_layers = 3, expected a layer of attention over all tokens"),
        (
            {"head_count_kv": [0, 1, 0, 1, 0, 1, 0, 1]},
            r"head_count_kv = 1, expected an even divisor of the 6 query heads",
        ),
        ({"head_count_kv": [0, 2, 0, 2, 0, 2, 0, 6]}, r"head_count_kv = 6, expected the 2 heads of layer 5"),
        (
            {"head_count_kv": [0, 4, 0, 2, 0, 2, 0, 2]},
            r"head_count_kv = 4, expected an even divisor of the 6 query heads",
        ),
    ],
)
def test_damaged_keys(
    change: dict[str, Any], message: str, tmp_path: Path, data_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(FormatError, match=message):
        logits(written(tmp_path, data_dir, monkeypatch, **change))


def test_a_factor_that_is_no_number(tmp_path: Path, data_dir: Path) -> None:
    source = random_checkpoints.write(CONFIGS["phi4flash"], tmp_path / "model")
    tensors = load_file(source / "model.safetensors")
    for name in ("q2", "k2"):
        tensors[f"model.layers.3.attn.inner_cross_attn.lambda_{name}"][:] = 9.0
    save_file(tensors, source / "model.safetensors")
    with pytest.raises(FormatError, match=r"m.gguf: blk.3.attn_lambda makes lambda -inf, expected less than 1e\+30"):
        logits(converted(source, data_dir))
