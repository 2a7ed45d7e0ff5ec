"""The facts of a file, on a small hybrid written for the purpose."""

import json
from pathlib import Path

import numpy as np
import pytest

from hybrid.cli.commands.inspect import pattern_rows
from hybrid.cli.main import run
from hybrid.quant.ggml import formats
from hybrid.quant.ggml.formats.random_blocks import random_blocks
from hybrid.quant.ggml.reader import GGUFFile
from hybrid.quant.ggml.types import GGMLType
from hybrid.quant.ggml.writer import GGUFWriter
from hybrid.quant.inspection import inspect

D_INNER, D_STATE, D_CONV, N_KV, D_HEAD = 96, 7, 4, 3, 32
TENSORS = {
    "token_embd.weight": ((11, 64), GGMLType.Q8_0),
    "blk.0.ssm_a": ((D_INNER, D_STATE), GGMLType.F32),
    "blk.0.ssm_conv1d.weight": ((D_INNER, D_CONV), GGMLType.F32),
    "blk.1.attn_q.weight": ((64, 64), GGMLType.Q4_0),
    "blk.1.attn_k.weight": ((N_KV * D_HEAD, 64), GGMLType.F16),
    "blk.1.attn_v.weight": ((N_KV * D_HEAD, 64), GGMLType.F16),
    "blk.1.ffn_gate_inp.weight": ((2, 64), GGMLType.F32),
    "blk.1.ffn_up_exps.weight": ((2, 5, 64), GGMLType.Q8_0),
}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "hybrid.gguf"
    with GGUFWriter(path, "jamba") as writer:
        writer.add("general.name", "Tiny\x1b[31m")
        writer.add("general.file_type", 7)
        writer.add("jamba.block_count", 3)
        writer.add("jamba.ssm.inner_size", D_INNER)
        writer.add("jamba.ssm.state_size", D_STATE)
        writer.add("tokenizer.ggml.tokens", [f"t{i}" for i in range(11)])
        for name, (shape, kind) in TENSORS.items():
            writer.declare(name, shape, kind)
        for name, (shape, kind) in TENSORS.items():
            writer.write(name, formats.encode(kind, np.zeros(shape, np.float32)))
    return path


def test_facts(file: Path) -> None:
    with GGUFFile.open(file) as gguf:
        facts = inspect(gguf, n_ctx=100)
    assert facts.pattern == ("M", "AE", "-")
    assert facts.file_type == "Q8_0"
    assert facts.n_vocab == 11
    assert facts.state_nbytes_per_seq == 4 * (D_INNER * D_STATE + D_INNER * (D_CONV - 1))
    assert facts.kv_nbytes_per_token == 2 * 2 * N_KV * D_HEAD
    assert facts.kv_nbytes_per_seq == 100 * facts.kv_nbytes_per_token
    weights = sum(int(np.prod(shape)) for shape, _ in TENSORS.values())
    assert facts.n_weights == weights == sum(t.n_weights for t in facts.types)
    assert facts.bits_per_weight == pytest.approx(8 * sum(t.nbytes for t in facts.types) / weights)


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
