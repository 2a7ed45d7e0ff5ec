"""RWKV-7b: refused files, and what is kept per token."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from random_models import random_model

from hybrid.infer.engine.layer_facts import layer_facts
from hybrid.infer.engine.network import Network
from hybrid.quant.ggml.errors import FormatError
from hybrid.quant.ggml.reader import GGUFFile


def changed(gguf: GGUFFile, monkeypatch: pytest.MonkeyPatch, **values: Any) -> None:
    keys = {f"rwkv7a.deep_embed.{name.replace('__', '.')}": value for name, value in values.items()}
    monkeypatch.setattr(gguf, "metadata", {**gguf.metadata, **keys})


def test_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with GGUFFile.open(random_model("rwkv7b")) as gguf:
        name = "blk.1.dea_v_embd.weight"
        rows, n = gguf.tensors[name].shape
        shorter = replace(gguf.tensors[name], shape=(rows - 1, n), nbytes=4 * (rows - 1) * n)
        with monkeypatch.context() as patch:
            patch.setitem(gguf.tensors, name, shorter)
            message = (
                f"{name} has {rows - 1} rows, expected one for each of the {rows} tokens. Convert the model again."
            )
            with pytest.raises(FormatError, match=message):
                Network(gguf, 16, n_ctx=64)
        for change, message in (
            ({"attention__key_length": 36}, "key_length = 36, expected a divisor of embedding_length = 96"),
            ({"attention__rank": 4}, r"blk.0.dea_k_down.weight has shape \[5, 96\], expected \[4, 96\]"),
            ({"length": 6}, r"blk.0.deep_embd.weight has shape \[[0-9]+, 49\], expected \[vocabulary, 36\]"),
        ):
            with monkeypatch.context() as patch:
                changed(gguf, patch, **change)
                with pytest.raises(FormatError, match=message):
                    Network(gguf, 16, n_ctx=64)


def test_what_is_kept_of_a_token() -> None:
    """Four heads have a key each, of the same values."""
    path: Path = random_model("rwkv7b")
    with GGUFFile.open(path) as gguf:
        facts = layer_facts(gguf)
    assert [layer.letters for layer in facts] == ["AR"] * 3
    assert [layer.kv_nbytes_per_token for layer in facts] == [2 * (4 * 24 + 96)] * 3
    assert [layer.state_nbytes for layer in facts] == [4 * (2 * 96 + 3 * 32 * 32 + 2 * 24 + 96)] * 3
