"""benchmarks/*.py: compare with stand-ins for all four programs, disk with a checkpoint of a few hundred KB."""

import argparse
import importlib.util
import json
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from hybrid.infer.bench.machine import Machine
from hybrid.infer.bench.shapes import Shape
from hybrid.quant.ggml.errors import UsageError

ROOT = Path(__file__).resolve().parents[3]
SHAPE = Shape(
    "tiny-jamba", "jamba", 3, 96, 2016, 4096, 1e-6, n_ff=160, n_head=3, n_head_kv=1, head_dim=32, dt_rank=6,
    attn_offset=1, attn_period=3, d_state=5,
)  # fmt: skip


def script(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"benchmarks_{name}", ROOT / "benchmarks" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def compare(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    module = script("compare")
    machine = Machine("EPYC (znver5)", "avx512-vnni", 2, 50.0, 500.0, {"vnni": 1500.0})
    monkeypatch.setattr(module, "measure_machine", lambda n: machine)
    monkeypatch.setattr(sys, "argv", ["compare.py", "--peer", "/somewhere/private/bin", "-p", "512"])
    return module


@pytest.fixture
def tools(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """hybrid, llama-bench and llama-perplexity that print what they were made to print, and log that they ran."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setattr(sys, "executable", str(folder / "python"))
    ours = [{"n_prompt": 512, "n_gen": 0, "n_depth": 0, "avg_ts": 200.0}]
    ours += [{"n_prompt": 0, "n_gen": 64, "n_depth": 32, "avg_ts": 20.0}]
    theirs = [{**record, "avg_ts": record["avg_ts"] / 4, "build_commit": "0c1e570"} for record in ours]
    ppl = {"ppl": 9.7204, "stderr": 0.1}
    program(
        folder / "hybrid",
        f"""case $1 in
bench) echo '{json.dumps(ours)}';;
perplexity) echo '{json.dumps(ppl)}';;
esac""",
    )
    program(folder / "llama-bench", f"echo loading >&2; echo '{json.dumps(theirs)}'")
    program(folder / "llama-perplexity", "echo '0.01 I Final estimate: PPL = 9.7201 +/- 0.10050' >&2")
    return folder


def program(path: Path, body: str) -> None:
    path.write_text(f'#!/bin/sh\necho "{path.name} $*" >> {path.parent}/log\n{body}\n')
    path.chmod(0o755)


def arguments(folder: Path, **changes: Any) -> argparse.Namespace:
    model = folder / "tiny.gguf"
    model.write_bytes(bytes(1_000_000))
    text = folder / "text.txt"
    text.write_text("text")
    values = {
        "peer": folder, "model": [model], "shape": [], "type": "Q8_0", "p": "512", "n": "64", "d": "0", "t": 2,
        "rounds": 2, "text": text, "c": 512, "exact": False, "write": False,
    }  # fmt: skip
    return argparse.Namespace(**{**values, **changes})


def test_compare(compare: ModuleType, tools: Path) -> None:
    text = compare.run(arguments(tools))
    rows = [
        [cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines() if line.startswith("| ti")
    ]
    assert rows[0][2:] == ["pp512", "200.00 (200.00 - 200.00)", "50.00 (50.00 - 50.00)", "4.00", "-"]
    # 20 tokens of 1 MB in a second are 0.04 % of 50 GB/s
    assert rows[1][2:] == ["tg64 @ d32", "20.00 (20.00 - 20.00)", "5.00 (5.00 - 5.00)", "4.00", "0%"]
    assert rows[2][1] == "9.7204 ± 0.1000"
    assert rows[2][3] == "9.7201 ± 0.1005"
    assert rows[2][5] == "+0.003%"
    assert "EPYC (znver5), 2 threads. Read bandwidth 50.0 GB/s" in text
    assert "llama.cpp 0c1e570" in text
    assert "`python benchmarks/compare.py --peer bin -p 512`" in text
    assert str(tools) not in text


def test_rounds_alternate(compare: ModuleType, tools: Path) -> None:
    compare.run(arguments(tools, rounds=3, text=None))
    ran = [line.split()[0] for line in (tools / "log").read_text().splitlines()]
    assert ran == ["hybrid", *["hybrid", "llama-bench"] * 3]


def test_both_sides_get_the_same_tests(compare: ModuleType, tools: Path) -> None:
    compare.run(arguments(tools, rounds=1, text=None, p="128,512", d="0,64"))
    ours, theirs = (tools / "log").read_text().splitlines()[1:]
    for option in ["-p 128,512", "-n 64", "-d 0,64", "-t 2", "-r 1", "-o json"]:
        assert option in ours
        assert option in theirs


def test_without_a_peer(compare: ModuleType, tools: Path) -> None:
    text = compare.run(arguments(tools, peer=None))
    assert "llama" not in text.replace("--peer bin", "")
    assert "| tiny  |" in text


def test_failures_are_one_line(compare: ModuleType, tools: Path) -> None:
    program(tools / "llama-bench", "echo 'error: no such device' >&2; exit 3")
    with pytest.raises(UsageError, match="failed with 3: error: no such device"):
        compare.run(arguments(tools))
    (tools / "llama-bench").unlink()
    with pytest.raises(UsageError, match="no such program"):
        compare.run(arguments(tools))
    program(tools / "llama-bench", "echo '[]'")
    program(tools / "llama-perplexity", "echo 'you need at least 1024 tokens'")
    with pytest.raises(UsageError, match=r"gave no estimate for tiny\.gguf"):
        compare.run(arguments(tools, n="64"))
    with pytest.raises(UsageError, match="-p x"):
        compare.run(arguments(tools, p="x"))
    with pytest.raises(UsageError, match=r"--type Q9_0: not a type .* Choose some of F32"):
        compare.run(arguments(tools, shape=["jamba-3b"], type="Q9_0"))


def test_disk_writes_a_checkpoint_that_converts(tmp_path: Path) -> None:
    from hybrid.convert import plan

    disk = script("disk")
    disk._SHARD = 200_000
    folder = tmp_path / "checkpoint"
    disk.write_checkpoint(SHAPE, folder)
    shards = sorted(folder.glob("*.safetensors"))
    assert len(shards) > 1
    index = json.loads((folder / "model.safetensors.index.json").read_text())["weight_map"]
    assert sum(path.stat().st_size for path in shards) > 2 * SHAPE.n_params
    header = json.loads(shards[0].read_bytes()[8 : 8 + int.from_bytes(shards[0].read_bytes()[:8], "little")])
    assert header["model.embed_tokens.weight"]["shape"] == [2016, 96]
    assert index["model.embed_tokens.weight"] == shards[0].name
    planned = plan(folder)
    assert {t.name: tuple(t.shape) for t in planned.tensors} == {t.name: t.shape for t in SHAPE.tensors()}


def test_disk_values_are_sane_bf16(tmp_path: Path) -> None:
    disk = script("disk")
    disk.write_checkpoint(SHAPE, tmp_path / "c")
    raw = b"".join(path.read_bytes() for path in sorted((tmp_path / "c").glob("*.safetensors")))
    nbytes = int.from_bytes(raw[:8], "little")
    header, data = json.loads(raw[8 : 8 + nbytes]), raw[8 + nbytes :]

    def values(name: str) -> np.ndarray:
        begin, end = header[name]["data_offsets"]
        bits = np.frombuffer(data[begin:end], np.uint16).astype(np.uint32) << 16
        return bits.view(np.float32).reshape(header[name]["shape"])

    assert (values("model.layers.0.input_layernorm.weight") == 1).all()
    assert values("model.layers.0.mamba.in_proj.weight").std() * 96**0.5 == pytest.approx(1, abs=0.05)
    assert values("model.layers.0.mamba.conv1d.weight").shape == (192, 1, 4)
    assert np.isfinite(values("model.layers.0.mamba.dt_proj.bias")).all()


def test_disk_refuses_what_is_no_dense_jamba() -> None:
    disk = script("disk")
    with pytest.raises(UsageError, match="--shape mamba-130m: a dense Jamba"):
        disk.run(disk.find_shape("mamba-130m"), None, "auto", 1)
