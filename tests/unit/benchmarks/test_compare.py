"""benchmarks/compare.py from end to end, with stand-ins for the programs, the machine and its neighbours."""

import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import compare
import pytest
import quiet
import results

from hybrid.infer.bench.machine import Machine
from hybrid.infer.bench.shapes import ModelShape, write_shape
from hybrid.quant.ggml.errors import UsageError
from hybrid.quant.ggml.types import FileType

pytestmark = pytest.mark.exhaustive

SHAPE = ModelShape("tiny", "mamba", 1, 32, 300, 64, 1e-5, dt_rank=2, d_state=4)
MACHINE = Machine("EPYC (znver3)", "avx2", 2, 30.0, 190.0, {"ub": 380.0, "s16": 200.0})

STAND_IN = """#!{python}
import json, sys
words = sys.argv[1:]
open({log!r}, "a").write({name!r} + " " + " ".join(words) + "\\n")
def of(option, default):
    return [int(n) for n in (words[words.index(option) + 1] if option in words else default).split(",")]
if "perplexity" in {name!r} + words[0]:
    print(json.dumps({{"ppl": 9.7204, "stderr": 0.1}}) if {ours} else "Final estimate: PPL = 9.7201 +/- 0.10050")
elif "batched" in {name!r}:
    for n in of("-npl", "1"):
        print(json.dumps({{"pp": 1, "tg": of("-ntg", "1")[0], "pl": n, "speed_tg": 10.0 * n}}))
else:
    tests = [(p, 0, 1) for p in of("-p", "0") if p] + [(0, n, k) for n in of("-n", "0") if n for k in of("-np", "1")]
    print(json.dumps([
        {{"n_prompt": p, "n_gen": n, "n_depth": of("-d", "0")[0], "n_parallel": k, "avg_ts": {rate} * (p or 10.0 * k),
          **({{}} if {ours} else {{"build_commit": "0c1e570"}})}} for p, n, k in tests
    ]))
"""


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return write_shape(SHAPE, tmp_path / "tiny-Q8_0.gguf", FileType.Q8_0)


@pytest.fixture
def tools(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Stand-ins for hybrid and llama.cpp's programs, ours twice as fast. The log lists the runs in order."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for name in ("hybrid", "llama-bench", "llama-batched-bench", "llama-perplexity"):
        ours = name == "hybrid"
        path = folder / name
        path.write_text(
            STAND_IN.format(python=sys.executable, log=str(folder / "log"), name=name, ours=ours, rate=2 if ours else 1)
        )
        path.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(folder / "python"))
    monkeypatch.setattr(sys, "argv", ["compare.py", "--peer", "/somewhere/private/bin", "--only", "a b"])
    monkeypatch.setattr(compare, "measure_machine", lambda n: MACHINE)
    monkeypatch.setattr(compare, "_here", {})
    monkeypatch.setattr(compare, "busy_now", lambda: "")
    monkeypatch.setattr(quiet.Watch, "_sample", staticmethod(lambda: None))
    return folder


def run(tools: Path, model: Path, *words: str, peer: bool = True) -> list[Any]:
    options = ["--model", str(model), "-t", "2", *(["--peer", str(tools)] if peer else []), *words]
    return compare.start(compare.parse_arguments([*options, "--data", str(tools / "results.jsonl")]))


def log(tools: Path) -> list[str]:
    return (tools / "log").read_text().splitlines()


def test_rows(tools: Path, model: Path) -> None:
    rows = run(tools, model, "-p", "32,64", "-n", "4", "-np", "1,8", "-d", "0,16", "--rounds", "2", "--write")
    by_test = {row["test"]: row for row in rows}
    assert list(by_test) == ["pp32", "pp64", "tg4", "tg4 x8", "pp512 @ d16", "tg4 @ d16"]
    assert results.load(tools / "results.jsonl") == rows
    pp = by_test["pp64"]
    assert (pp["cpu"], pp["isa"], pp["threads"], pp["model"], pp["type"]) == (
        "EPYC (znver3)",
        "avx2",
        2,
        "tiny",
        "Q8_0",
    )
    assert pp["hybrid"]["rates"] == [128.0, 128.0]
    assert pp["peer"]["median"] == 64.0
    assert pp["limits"] == {"read_gb_s": [30.0] * 4, "f32_gflop_s": [190.0] * 4, "int8_gop_s": [380.0] * 4}
    assert pp["noisy"] == ""
    assert pp["nbytes"] == model.stat().st_size
    assert pp["versions"]["llama.cpp"] == "0c1e570"
    assert pp["command"] == 'python benchmarks/compare.py --peer bin --only "a b"'
    assert by_test["tg4 x8"]["peer"]["median"] == 80.0
    assert by_test["tg4"]["of_bandwidth"] is not None
    assert by_test["tg4"]["of_peak"] is None
    assert by_test["tg4 @ d16"]["of_bandwidth"] is None, "keys and values are read too"
    assert "tiny" in results.report(rows)


def test_rounds_alternate(tools: Path, model: Path) -> None:
    run(tools, model, "-p", "32", "-n", "4", "-np", "1", "--rounds", "3")
    ran = [line.split()[0] for line in log(tools)]
    assert ran == ["hybrid", *["hybrid", "llama-bench"], *["llama-bench", "hybrid"], *["hybrid", "llama-bench"]]


def test_resume_and_only(tools: Path, model: Path) -> None:
    options = ["-p", "32,64", "-n", "4", "-np", "1", "--rounds", "1", "--write"]
    assert [r["test"] for r in run(tools, model, *options, "--only", "pp64")] == ["pp64"]
    rows = run(tools, model, *options, "--resume")
    assert [r["test"] for r in rows] == ["pp32", "tg4"]
    assert "-p 32 -n 4 " in log(tools)[-1]
    n = len(log(tools))
    assert run(tools, model, *options, "--resume") == []
    assert len(log(tools)) == n, "not even a warm-up"
    assert len(results.load(tools / "results.jsonl")) == 3


def test_without_a_peer(tools: Path, model: Path) -> None:
    rows = run(tools, model, "-p", "32", "-n", "4", "-np", "1", "--rounds", "1", peer=False)
    assert [row["peer"] for row in rows] == [None, None]
    assert "llama.cpp" not in rows[0]["versions"]
    assert {line.split()[0] for line in log(tools)} == {"hybrid"}


def test_a_disturbed_round_is_measured_again(
    tools: Path, model: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    slow = replace(MACHINE, read_gb_s=20.0)
    limits: Iterator[Machine] = iter([MACHINE, MACHINE, slow, *[MACHINE] * 4])
    monkeypatch.setattr(compare, "measure_machine", lambda n: next(limits))
    rows = run(tools, model, "-p", "32", "-n", "0", "-np", "1", "--rounds", "2")
    assert "again: read GB/s went from 30 to 20" in capsys.readouterr().err
    assert rows[0]["noisy"] == ""
    assert rows[0]["limits"]["read_gb_s"] == [30.0] * 4
    assert len(rows[0]["hybrid"]["rates"]) == 2
    assert sum(line.startswith("llama-bench") for line in log(tools)) == 3


@pytest.mark.parametrize(("options", "runs"), [((), 2 + 3), (("--busy",), 2)])
def test_what_stays_noisy_is_marked(
    tools: Path, model: Path, monkeypatch: pytest.MonkeyPatch, options: tuple[str, ...], runs: int
) -> None:
    monkeypatch.setattr(compare, "disturbed", lambda *_: ["others use 1.0 cores"])
    rows = run(tools, model, "-p", "32", "-n", "0", "-np", "1", "--rounds", "2", *options)
    assert rows[0]["noisy"] == "others use 1.0 cores"
    assert len(rows[0]["hybrid"]["rates"]) == 2
    assert sum(line.startswith("llama-bench") for line in log(tools)) == runs


def test_a_busy_machine_is_refused(tools: Path, model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compare, "busy_now", lambda: "others use 1.7 cores")
    with pytest.raises(UsageError, match=r"the machine is busy: others use 1\.7 cores\. Wait, or use --busy"):
        run(tools, model)
    assert run(tools, model, "-p", "32", "-n", "0", "-np", "1", "--busy")


def test_patience_with_the_peers_depth(tools: Path, model: Path) -> None:
    """The peer computes 512 tokens per second: a round with 1024 takes 2 s, 4096 are too many."""
    options = ["-p", "512", "-n", "4", "-np", "1", "-d", "0,1024,4096", "--patience", "5"]
    rows = {row["test"]: row for row in run(tools, model, *options)}
    assert len(rows["tg4"]["peer"]["rates"]) == 3
    assert len(rows["tg4 @ d1024"]["peer"]["rates"]) == 2
    assert rows["tg4 @ d4096"]["peer"] is None
    assert len(rows["tg4 @ d4096"]["hybrid"]["rates"]) == 3


def test_perplexity(tools: Path, model: Path) -> None:
    text = tools / "text.txt"
    text.write_text("text")
    rows = run(tools, model, "-p", "32", "-n", "0", "-np", "1", "--rounds", "2", "--text", str(text))
    ppl = next(row for row in rows if row["kind"] == "perplexity")
    assert ppl["test"] == "text.txt, context 512"
    assert (ppl["hybrid"]["ppl"], ppl["peer"]["ppl"]) == (9.7204, 9.7201)
    assert len(ppl["peer"]["seconds"]) == 2
    assert "+0.003%" in results.report(rows)


def test_bad_options(tools: Path, model: Path) -> None:
    with pytest.raises(UsageError, match="-p x"):
        run(tools, model, "-p", "x")
    with pytest.raises(UsageError, match=r"type Q9_0: not a type .* Choose some of F32"):
        run(tools, model, "--type", "Q9_0")
    with pytest.raises(UsageError, match="--rounds 0"):
        run(tools, model, "--rounds", "0")
    with pytest.raises(UsageError, match="shape nothing"):
        run(tools, model, "--shape", "nothing")
