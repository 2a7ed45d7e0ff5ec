"""Calls of the measured programs, with stand-ins that log them, and parsing of their output."""

import json
import sys
from pathlib import Path

import programs
import pytest

from hybrid.infer.bench.benchmark import BenchTest
from hybrid.quant.ggml.errors import UsageError

# llama-batched-bench of 2026-10, shortened
BATCHED = """
{"n_kv_max": 512, "n_batch": 2048, "pp": 1, "tg": 4, "pl": 1, "n_kv": 20, "t_tg": 0.158506, "speed_tg": 25.235638}
{"n_kv_max": 512, "n_batch": 2048, "pp": 1, "tg": 4, "pl": 2, "n_kv": 40, "t_tg": 0.080619, "speed_tg": 99.232193}
{"n_kv_max": 512, "n_batch": 2048, "pp": 64, "tg": 4, "pl": 2, "n_kv": 40, "t_tg": 0.080619, "speed_tg": 88.5}

llama_perf_context_print:        load time =      10.00 ms
"""
BENCH = [
    {"build_commit": "0c1e570", "n_prompt": 16, "n_gen": 0, "n_depth": 0, "avg_ts": 9.9},
    {"build_commit": "0c1e570", "n_prompt": 0, "n_gen": 4, "n_depth": 32, "avg_ts": 2.5},
]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    return tmp_path


def program(path: Path, body: str) -> None:
    """A shell script that logs its arguments first."""
    path.write_text(f'#!/bin/sh\necho "{path.name} $*" >> {path.parent}/log\n{body}\n')
    path.chmod(0o755)


def gguf(folder: Path, nbytes: int = 1000) -> Path:
    path = folder / "m.gguf"
    with path.open("wb") as file:
        file.truncate(nbytes)
    return path


def logged(folder: Path) -> list[str]:
    return (folder / "log").read_text().splitlines()


def test_parse_bench() -> None:
    assert programs.parse_bench(json.dumps(BENCH)) == ({"pp16": 9.9, "tg4 @ d32": 2.5}, "0c1e570")
    ours = [{"n_prompt": 0, "n_gen": 8, "n_depth": 0, "n_parallel": 4, "avg_ts": 1}]
    assert programs.parse_bench(json.dumps(ours)) == ({"tg8 x4": 1.0}, "")
    for text in ("", "[]x", '{"a": 1}', '[{"n_prompt": 1}]'):
        with pytest.raises(UsageError, match="not llama-bench's JSON"):
            programs.parse_bench(text)


def test_parse_batched() -> None:
    assert programs.parse_batched(BATCHED) == {"tg4": 25.235638, "tg4 x2": 99.232193, "tg4 x2 @ d64": 88.5}
    with pytest.raises(UsageError, match="which is not its JSON"):
        programs.parse_batched('{"pp": 1}')


def test_both_sides_get_the_same_tests(folder: Path) -> None:
    for name in ("hybrid", "llama-bench"):
        program(folder / name, f"echo loading >&2; echo '{json.dumps(BENCH)}'")
    peer, model = programs.llama_cpp(folder / "llama-bench"), gguf(folder)
    tests = [BenchTest(16, 0, 64), BenchTest(32, 0, 64), BenchTest(0, 4, 64)]
    assert programs.ours().rates(model, tests, 2) == peer.rates(model, tests, 2)
    assert peer.version == "0c1e570"
    for line in logged(folder):
        assert line.endswith("-p 16,32 -n 4 -d 64 -t 2 -r 1 -o json")


def test_large_files_are_warmed_up_by_a_short_prompt(folder: Path) -> None:
    for name in ("hybrid", "llama-bench"):
        program(folder / name, f"echo '{json.dumps(BENCH)}'")
    model = gguf(folder, 1 << 30)
    for side in (programs.ours(), programs.llama_cpp(folder)):
        side.rates(model, [BenchTest(512, 0), BenchTest(0, 4)], 2)
    for line in logged(folder):
        assert line.endswith("-p 8,512 -n 4 -d 0 -t 2 -r 1 -o json --no-warmup")
    programs.ours().rates(model, [BenchTest(0, 4, 0, 8)], 2)
    assert logged(folder)[-1].endswith("-p 0 -n 4 -d 0 -np 8 -t 2 -r 1 -o json")


def test_batches(folder: Path) -> None:
    record = {"n_prompt": 0, "n_gen": 4, "n_depth": 0, "n_parallel": 8, "avg_ts": 1}
    program(folder / "hybrid", f"echo '{json.dumps([record])}'")
    program(folder / "llama-batched-bench", f"echo '{BATCHED}'")
    tests = [BenchTest(0, 4, 0, 2), BenchTest(0, 4, 0, 8)]
    assert programs.ours(["--exact"]).rates(gguf(folder), tests, 2) == {"tg4 x8": 1.0}
    assert programs.llama_cpp(folder).rates(gguf(folder), tests, 2)["tg4 x2"] == 99.232193
    ours, theirs = logged(folder)
    assert "-p 0 -n 4 -d 0 -np 2,8 " in ours
    assert ours.endswith("--exact")
    assert theirs.endswith("-c 2048 -npp 1 -ntg 4 -npl 2,8 -t 2 --output-format jsonl")


def test_perplexity(folder: Path) -> None:
    program(folder / "hybrid", """echo '{"ppl": 9.7, "stderr": 0.1, "chunks": 3}'""")
    program(folder / "llama-perplexity", "echo '0.01 I Final estimate: PPL = 9.7201 +/- 0.10050' >&2")
    model, text = Path("tiny.gguf"), Path("t.txt")
    estimate = programs.ours().perplexity(model, text, 512, 2)
    assert (estimate["ppl"], estimate["stderr"]) == (9.7, 0.1)
    estimate = programs.llama_cpp(folder).perplexity(model, text, 512, 2)
    assert (estimate["ppl"], estimate["stderr"]) == (9.7201, 0.1005)
    assert estimate["seconds"] > 0
    program(folder / "llama-perplexity", "echo 'you need at least 1024 tokens'")
    with pytest.raises(UsageError, match=r"gave no estimate for tiny\.gguf"):
        programs.llama_cpp(folder).perplexity(model, text, 512, 2)


def test_failures_are_one_line(folder: Path) -> None:
    peer = programs.llama_cpp(folder)
    with pytest.raises(UsageError, match=r"no such program\. llama\.cpp is expected"):
        peer.rates(gguf(folder), [BenchTest(1, 0)], 2)
    program(folder / "llama-bench", "echo 'error: no such device' >&2; exit 3")
    with pytest.raises(UsageError, match="failed with 3: error: no such device"):
        peer.rates(gguf(folder), [BenchTest(1, 0)], 2)
