"""Apertus: the parameters of its activation in a file."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tiny_models
from tiny_models import D_HEAD, N_VOCAB, Tensor

from hybrid.infer import LoadedModel
from hybrid.quant.ggml.errors import FormatError

NUMBERS = {"alpha_n": -1.05, "alpha_p": 0.2, "beta": 0.5, "eps": -1e-6}
IDS = np.random.default_rng(5).integers(3, N_VOCAB, 9).tolist()


def written(folder: Path, **numbers: Any) -> Path:
    """A Llama without gates, with norms per head."""
    tiny = tiny_models.llama()
    tiny.key_values = {key.replace("llama.", "apertus."): value for key, value in tiny.key_values.items()}
    tiny.arch = "apertus"
    tiny.set("general.architecture", "apertus")
    for i in range(2):
        del tiny.tensors[f"blk.{i}.ffn_gate.weight"]
        for part in "qk":
            tiny.tensors[f"blk.{i}.attn_{part}_norm.weight"] = Tensor(np.ones(D_HEAD, np.float32))
    for name, value in (NUMBERS | numbers).items():
        if value is not None:
            tiny.set(f"xielu.{name}", value)
    return tiny.write(folder / f"{len(list(folder.iterdir()))}.gguf")


def logits(path: Path) -> np.ndarray:
    with LoadedModel.load(path, n_ctx=64, n_threads=1) as model:
        return model.sequence().logits_of(IDS)


def test_one_number_stands_for_all_layers(tmp_path: Path) -> None:
    both = written(tmp_path, **{name: [value, value] for name, value in NUMBERS.items()})
    np.testing.assert_array_equal(logits(written(tmp_path)), logits(both))
    assert (logits(written(tmp_path, alpha_p=[0.2, 0.9])) != logits(both)).any()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"alpha_n": None}, r"xielu\.alpha_n"),
        ({"beta": "0.5"}, r"xielu\.beta = '0\.5', expected a number, or one for every layer"),
        ({"beta": [0.5] * 3}, r"xielu\.beta has 3 values for 2 layers"),
        ({"alpha_p": float("nan")}, r"xielu\.alpha_p = nan, expected a finite number"),
        ({"eps": 0.25}, r"xielu\.eps = 0\.25, expected no positive number"),
    ],
)
def test_errors(change: dict[str, Any], message: str, tmp_path: Path) -> None:
    with pytest.raises(FormatError, match=message):
        LoadedModel.load(written(tmp_path, **change))
