"""The output of `hybrid inspect`."""

import json
import re
from itertools import pairwise
from pathlib import Path

import gguf_bytes as b
import numpy as np
import pytest
import tiny_models
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
    assert "hybrid.gguf has no key jamba.embedding_length" in out, "there is no saying what its layers are"
    assert 'tokenizer.ggml.tokens = ["t0", "t1"' in out and "(11)" in out
    for name in TENSORS:
        assert name in out


def test_layers(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tiny_models.FAMILIES["jamba"]().write(tmp_path / "tiny.gguf")
    assert run(["inspect", str(path), "-c", "100"]) == 0
    out = capsys.readouterr().out
    assert "0  AE M" in out and "A attention: 1, M Mamba: 1, E experts: 1" in out
    assert "at 100 tokens" in out


def test_an_architecture_that_does_not_run_here(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = tiny_models.FAMILIES["llama"]()
    model.key_values["general.architecture"] = (b.STR, b.string("lama"))
    path = model.write(tmp_path / "tiny.gguf")
    assert run(["inspect", str(path)]) == 0
    out = capsys.readouterr().out
    assert "not known: tiny.gguf: architecture 'lama' is not supported; near it are " in out and "F32" in out
    assert run(["inspect", str(path), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["pattern"] == []


def test_json(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["inspect", str(file), "--json", "-c", "7"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert data["n_ctx"] == 7
    assert data["metadata"]["jamba.block_count"] == 3
    assert len(data["metadata"]["tokenizer.ggml.tokens"]) == 11
    assert [t["name"] for t in data["tensors"]] == list(TENSORS)


def test_tokens_that_end_an_answer(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """All of them by id and text, EOS and the end of a turn first; none of an encoder and of half a tokenizer."""
    texts = ["<s>", "<|im_end|>", "</s>", "a", "<x>", "\x1b[31m", "<|user|>", "b"]
    types, eos = [3, 3, 3, 1, 3, 3, 3, 1], "tokenizer.ggml.eos_token_id"
    keys = {"tokenizer.ggml.model": "llama", "tokenizer.ggml.tokens": texts, "tokenizer.ggml.token_type": types}

    def shown(more: dict[str, object]) -> tuple[str, list[dict[str, object]]]:
        path = tmp_path / "ends.gguf"
        with GGUFWriter(path, "llama") as writer:
            for key, value in {**keys, **more}.items():
                writer.add(key, value)
        assert run(["inspect", str(path)]) == 0
        out = capsys.readouterr().out
        assert run(["inspect", str(path), "--json"]) == 0
        return out, json.loads(capsys.readouterr().out)["ends"]

    out, ends = shown({eos: 2, "hybrid.tokenizer.end_token_ids": [6, 5]})
    assert "tokens that end an answer\n" in out and "\x1b" not in out
    assert [one["id"] for one in ends] == [2, 1, 5, 6] and ends[1]["text"] == "<|im_end|>"
    assert out.index('  2  "</s>"\n  1  "<|im_end|>"\n  5  ') < out.index('  6  "<|user|>"\n')
    for more in ({"llama.attention.causal": False}, {eos: 99}):
        out, ends = shown(more)
        assert ends == [] and "end an answer" not in out


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


@pytest.fixture
def tiny(tmp_path: Path) -> Path:
    """A Llama with 2 layers of 2 heads of 8 that was trained for 100000 tokens."""
    model = tiny_models.FAMILIES["llama"]()
    model.set(".context_length", 100_000)
    return model.write(tmp_path / "tiny.gguf")


def test_what_running_takes(tiny: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["inspect", str(tiny), "--memory", "--parallel", "3", "--kv-type", "f32", "-c", "200000"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[:3] == [
        "memory: keys and values in f32, 3 sequences",
        "layers     number  per token  per sequence",
        "attention       2      512 B             -",
    ]
    assert [line.split("  ")[0] for line in lines[5:]] == ["4096", "32768", "100000 (as trained)", "200000"]
    # 3 sequences of whole pages of 64 tokens: 512 bytes for a token, 8 for a page; 32 bytes of cos and sin
    assert "146.6 MiB" in lines[7] and "3.1 MiB" in lines[7]
    assert "metadata" not in lines


def test_what_fits(tiny: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["inspect", str(tiny), "--fit", "--ram", "192MiB", "--checkpoint-budget", "8MiB"]
    assert run(command) == 0
    lines = capsys.readouterr().out.strip().splitlines()
    assert lines[0] == "what fits in a machine with 192.0 MiB for one program"
    assert lines[1].split() == ["sequences", "f32", "f16", "q8_0", "q5_0", "q4_0"]
    table = {int(n): [int(c) if c != "-" else 0 for c in cells] for n, *cells in map(str.split, lines[2:7])}
    assert list(table) == [1, 2, 4, 8, 16]
    for one, two in pairwise(table.values()):
        assert all(a >= b for a, b in zip(one, two, strict=True))  # more sequences have less each
    f32, f16, q8_0, q5_0, q4_0 = table[16]
    assert 4096 < f32 < f16 < q8_0 < q5_0 < q4_0 < 50_000 and table[2][0] < 100_000 == table[1][0]
    assert lines[7].startswith("The longest context of each sequence by type of keys and values, at most 100000 tokens")
    assert run([*command, "--json"]) == 0
    fits = json.loads(capsys.readouterr().out)["fit"]
    assert {(f["n_seq"], f["kv_type"]): f["n_ctx"] for f in fits["fits"]}[16, "f16"] == f16
    assert fits["machine"] == {"total": 192 << 20, "available": 192 << 20, "mappable": None}


def test_nothing_fits(tiny: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["inspect", str(tiny), "--fit", "--ram", "1KiB"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[2].split() == ["1", *"-----"]
    said = r"The weights do not fit\. A token uses [\d.]+ \w+ of them, and about [\d.]+ \w+ must be read from the disk "
    assert re.fullmatch(said + r"each time\.", lines[-1])


def test_memory_as_json(tiny: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["inspect", str(tiny), "--memory", "--fit", "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    memory = data["memory"]
    assert memory["kinds"] == [{"mixer": "attention", "n_layers": 2, "per_token": 256, "state": 0}]
    for account in memory["accounts"]:
        parts = [account[part] for part in ("weights", "working", "states", "keys_values", "positions")]
        assert account["total"] == sum(parts)
    assert data["fit"]["machine"]["available"] > 0 and data["fit"]["is_this_machine"]
    assert data["n_ctx"] == 100_000  # the plain facts are also those of the trained context


@pytest.mark.parametrize(("value", "shown"), [((0, None), "0"), ((1 << 63, b.U64), "9223372036854775808")])
def test_an_impossible_context(
    value: tuple[int, int | None], shown: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The file's contents are shown all the same; the needs of running are refused."""
    model = tiny_models.FAMILIES["llama"]()
    model.set(".context_length", *value)
    path = model.write(tmp_path / "m.gguf")
    assert run(["inspect", str(path)]) == 0
    out = capsys.readouterr().out
    assert f"llama.context_length = {shown}\n" in out
    assert f"not known: m.gguf: llama.context_length = {shown}, expected" in out
    assert run(["inspect", str(path), "--memory"]) == 1
    assert f"llama.context_length = {shown}, expected an integer of at least 1" in capsys.readouterr().err
