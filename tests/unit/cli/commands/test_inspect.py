"""What `hybrid inspect` prints of a file."""

import json
from pathlib import Path

import numpy as np
import pytest
from two_layers import TENSORS, write

from hybrid.cli.commands.inspect import pattern_rows
from hybrid.cli.main import run
from hybrid.quant.ggml.formats.random_blocks import random_blocks
from hybrid.quant.ggml.types import GGMLType
from hybrid.quant.ggml.writer import GGUFWriter


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return write(tmp_path / "hybrid.gguf")


def test_what_it_prints(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["inspect", str(file), "--tensors"]) == 0
    out = capsys.readouterr().out
    assert "\x1b" not in out, "a name in the file reached the terminal as an escape"
    assert "0  M  AE -" in out
    assert "A attention: 1, M state-space (Mamba): 1, E experts: 1" in out
    assert 'tokenizer.ggml.tokens = ["t0", "t1"' in out and "(11)" in out
    for name in TENSORS:
        assert name in out


def test_json(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["inspect", str(file), "--json", "-c", "7"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert data["n_ctx"] == 7
    assert data["metadata"]["jamba.block_count"] == 3
    assert len(data["metadata"]["tokenizer.ggml.tokens"]) == 11
    assert [t["name"] for t in data["tensors"]] == list(TENSORS)


def test_pattern_rows() -> None:
    assert pattern_rows(("M", "AE") * 9) == [
        " 0  M  AE M  AE M  AE M  AE M  AE M  AE M  AE M  AE",
        "16  M  AE",
    ]


def test_a_mix_of_block_types(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    kinds = {"token_embd.weight": GGMLType.Q6_K, "blk.0.ffn_up.weight": GGMLType.Q4_K, "x.weight": GGMLType.IQ1_M}
    path = tmp_path / "mix.gguf"
    with GGUFWriter(path, "llama") as writer:
        writer.add("general.file_type", 15)
        for name, kind in kinds.items():
            writer.declare(name, (3, 512), kind)
        for name, kind in kinds.items():
            writer.write(name, random_blocks(kind, (3, 512), np.random.default_rng(0)))
    assert run(["inspect", str(path), "--tensors"]) == 0
    out = capsys.readouterr().out
    assert "general.file_type = 15 (Q4_K_M)" in out
    for kind in kinds.values():
        assert kind.name in out
