"""Apertus: the parameters of its activation are tensors in a checkpoint and keys in a file."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import random_checkpoints
from random_checkpoints import CONFIGS
from safetensors.numpy import save_file

from hybrid.convert.plan import prepare
from hybrid.quant.ggml.errors import CheckpointError
from hybrid.quant.ggml.types import FileType

NAME = "model.layers.1.mlp.act_fn."


@pytest.fixture
def converted(tmp_path: Path) -> Callable[..., Any]:
    """The plan of a checkpoint with tensors changed by a function."""

    def make(change: Callable[[dict[str, np.ndarray]], object]) -> Any:
        folder = random_checkpoints.write(CONFIGS["apertus"], tmp_path / "model")
        tensors = random_checkpoints.tensors(json.loads((folder / "config.json").read_text()))
        change(tensors)
        save_file(tensors, folder / "model.safetensors")
        return prepare(folder, with_vocabulary=False)

    return make


def test_numbers_of_tensors_are_keys(converted: Callable[..., Any]) -> None:
    """Tensors with one dimension or none become keys in llama.cpp's order, without the architecture's prefix."""
    tensors: dict[str, np.ndarray] = {}

    def change(all_of_them: dict[str, np.ndarray]) -> None:
        all_of_them[NAME + "alpha_p"] = all_of_them[NAME + "alpha_p"].reshape(())
        all_of_them[NAME + "beta"] = all_of_them[NAME + "beta"].reshape(1)
        tensors.update(all_of_them)

    plan = converted(change).plan
    keys = {key: value for key, value in plan.metadata.items() if "xielu" in key}
    assert list(keys) == [f"xielu.{name}" for name in ("alpha_n", "alpha_p", "beta", "eps")]
    for key, values in keys.items():
        assert values == [float(tensors[f"model.layers.{i}.mlp.act_fn.{key[6:]}"].reshape(())) for i in range(3)]
    assert not any("act_fn" in tensor.name for tensor in plan.tensors)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda t: t.pop(NAME + "alpha_n"), r"lacks tensor .*layers\.1\.mlp\.act_fn\.alpha_n"),
        (lambda t: t.update({NAME + "eps": np.zeros(2, np.float32)}), r"act_fn\.eps.* has shape \[2\], expected one"),
        (lambda t: t.update({NAME + "gamma": np.zeros(1, np.float32)}), r"act_fn\.gamma.* no place"),
    ],
)
def test_errors(change: Callable[[Any], object], message: str, converted: Callable[..., Any]) -> None:
    with pytest.raises(CheckpointError, match=message):
        converted(change)


def test_rope_where_a_config_says_nothing() -> None:
    config = {"vocab_size": 8, **CONFIGS["apertus"]}
    del config["rope_parameters"]
    model = random_checkpoints.family_for(config)
    assert dict(model.keys(FileType.F32))["rope.freq_base"] == 12e6
    factors = next(row.constant for row in model.rows() if row.target == "rope_freqs.weight")
    assert factors is not None and factors[0] == 1 and factors[-1] == 8
