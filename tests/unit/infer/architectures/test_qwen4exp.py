"""Qwen3.8-Flash-Next with changed keys and in damaged files; tokens that end n-grams."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import random_checkpoints
from random_checkpoints import CONFIGS
from reference.families import Reference

from hybrid.convert import convert
from hybrid.convert.architectures.qwen4exp import Qwen4Exp
from hybrid.infer import LoadedModel
from hybrid.quant.ggml.errors import FormatError
from hybrid.quant.ggml.types import FileType

KEYS = Qwen4Exp.keys
IDS = list(range(260, 290))


def made(folder: Path, data_dir: Path, monkeypatch: pytest.MonkeyPatch, **change: Any) -> Path:
    """A random model with changed keys; keys that are None are left out."""

    def keys(self: Qwen4Exp, file_type: FileType) -> Iterator[tuple[str, Any]]:
        for name, value in KEYS(self, file_type):
            if (value := change.get(name, value)) is not None:
                yield name, value

    monkeypatch.setattr(Qwen4Exp, "keys", keys)
    source = random_checkpoints.write(CONFIGS["qwen4exp"], folder / "model")
    convert(source, folder / "m.gguf", outtype="f32", tokenizer=data_dir / "checkpoints" / "mamba-bf16")
    return folder / "m.gguf"


def logits(path: Path, ids: list[int] = IDS) -> np.ndarray:
    with LoadedModel.load(path, n_ctx=64, precision="exact") as model:
        return model.sequence().logits_of(ids)


def test_the_gate_of_the_delta_rule(tmp_path: Path, data_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the key the gate is llama.cpp's, a sigmoid."""
    config = {"vocab_size": random_checkpoints.N_VOCAB, **CONFIGS["qwen4exp"]}
    ours = logits(made(tmp_path, data_dir, monkeypatch))
    without = logits(made(tmp_path, data_dir, monkeypatch, **{"hybrid.ssm.silu_gate": None}))
    for got, gate in ((ours, "silu"), (without, "sigmoid")):
        reference = Reference({**config, "output_gate_type": gate}, random_checkpoints.tensors(config))
        want = reference.logits(IDS)
        assert np.abs(got - want).max() < 2e-5 * np.abs(want).max()


def test_ends_of_texts(tmp_path: Path, data_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After an end token n-grams begin anew, in one call and across calls."""
    config = {"vocab_size": random_checkpoints.N_VOCAB, **CONFIGS["qwen4exp"]}
    end = config["eos_token_id"][0]
    ids = [end, *IDS[:9], end, end, *IDS[9:14], end, *IDS[14:]]
    path = made(tmp_path, data_dir, monkeypatch)
    want = Reference(config, random_checkpoints.tensors(config)).logits(ids)
    got = logits(path, ids)
    assert np.abs(got - want).max() < 2e-5 * np.abs(want).max()
    with LoadedModel.load(path, n_ctx=64, precision="exact") as model:
        seq = model.sequence()
        parts = [seq.logits_of(ids[a:b]) for a, b in ((0, 1), (1, 11), (11, 12), (12, 18), (18, len(ids)))]
    assert np.concatenate(parts).tobytes() == got.tobytes()


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("hyper_connection.count", 1, r"hyper_connection.count = 1, expected an integer of at least 2"),
        ("attention.compress_ratios", [0, 0, 0, 3], r"compress_ratios = 0, expected a group of tokens on layer 1"),
        ("attention.compress_ratios", [0, 2000, 0, 3], r"top_k = 9, expected a group of 2000 tokens or more"),
        ("attention.indexer.top_k", 2, r"indexer.top_k = 2, expected a group of 3 tokens or more"),
        ("attention.indexer.key_length", 10, r"has shape|expected at least the 12 values that RoPE rotates"),
        ("rope.dimension_count", 16, r"indexer.key_length = 14, expected at least the 16 values that RoPE rotates"),
        ("ple.ngram_size", 1, r"ple.ngram_size = 1, expected 2 to 64"),
        ("ple.ngram_size", 65, r"ple.ngram_size = 65, expected 2 to 64"),
        ("ple.ngram_size", 3, r"ple.layer_multipliers = .*, expected 3 numbers"),
        ("ple.heads_per_ngram", 3, r"ple.head_offsets = .*, expected 9 numbers"),
        ("ple.conv_kernel", 0, r"ple.conv_kernel = 0, expected 1 to 1024"),
        ("ple.conv_kernel", 4, r"ple_conv1d.weight has shape"),
        ("ple.layer_multipliers", "x", r"ple.layer_multipliers = 'x', expected integers"),
        ("ple.layer_multipliers", np.array([1, 2, 3, -4]), r"expected numbers from 0 to 2\^63 - 1"),
        (
            "ple.head_vocab_sizes",
            np.array([37, 41, 43, 47, 53, 66]),
            r"= 66, expected a part of the 286 rows, from 221",
        ),
        ("ple.head_vocab_sizes", np.array([0, 41, 43, 47, 53, 59]), r"= 0, expected a part of the 286 rows"),
        ("ple.layers", None, r"no such tensor"),
        ("embedding_length_per_layer_input", 16, r"per_layer_token_embd.weight has shape"),
        ("ssm.time_step_rank", 7, r"ssm.time_step_rank = 7, expected a divisor of ssm.inner_size"),
    ],
)
def test_damaged_keys(
    key: str, value: Any, message: str, tmp_path: Path, data_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(FormatError, match=message):
        LoadedModel.load(made(tmp_path, data_dir, monkeypatch, **{key: value}), n_ctx=64)
