"""Files that claim to be another one without some layers, and are not quite."""

import shutil
from pathlib import Path
from typing import Any

import pytest
from random_models import random_model

from hybrid.infer.engine.same_layers import check_same_layers
from hybrid.quant.ggml.errors import UnsupportedError
from hybrid.quant.ggml.reader import GGUFFile
from hybrid.quant.rewrite import set_value


def check(name: str, to: Path, kept: list[int], halve_every: int = 0, **keys: Any) -> None:
    """Compares a model with itself after changes of its keys."""
    before, after = random_model(name), to / "after.gguf"
    shutil.copy(before, after)
    for key, value in keys.items():
        set_value(after, key, value)
    with GGUFFile.open(before) as old, GGUFFile.open(after) as new:
        check_same_layers(old, new, kept, halve_every)


@pytest.mark.parametrize(
    ("name", "key", "value", "says"),
    [
        ("gemma4", "gemma4.attention.sliding_window", "7", "layer 0 .*: its window would be 7, not 11"),
        ("gemma4", "gemma4.attention.shared_kv_layers", "3", "layer 3 .*: it would have BorrowedKeys in place of Norm"),
        ("kimi-linear", "kimi-linear.leading_dense_block_count", "2", "layer 1 .*: it would have GatedFeedForward in "),
        ("kimi-k3", "kimi-k3.attn_res.block_size", "3", "layer 0 .*: its BankedResidual depends on its number or"),
        ("zamba2", "zamba2.shared_block_count", "1", "layer 2 .*: it would use another layer than 2"),
    ],
)
def test_keys_that_change_a_layer(name: str, key: str, value: str, says: str, tmp_path: Path) -> None:
    with GGUFFile.open(random_model(name)) as gguf:
        kept = list(range(gguf.get(f"{gguf.get('general.architecture')}.block_count")))
    check(name, tmp_path, kept)
    with pytest.raises(UnsupportedError, match=rf"^after\.gguf: {says}.*\. Leave out other layers\.$"):
        check(name, tmp_path, kept, **{key: value})


def test_halved_streams(tmp_path: Path) -> None:
    check("mamba-biased", tmp_path, [0, 1, 2], halve_every=2)
    with pytest.raises(UnsupportedError, match=r"layer 1 .*: the residual stream is halved every 2 layers"):
        check("mamba-biased", tmp_path, [1, 2], halve_every=2)
