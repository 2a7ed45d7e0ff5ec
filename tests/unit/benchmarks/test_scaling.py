"""benchmarks/scaling.py: its ratios, the bounds of a row, and a run on a small model."""

import sys
from pathlib import Path

import pytest
import scaling
from converted_models import converted

from hybrid.infer.bench.benchmark import BenchTest, Setting, SpeedRow
from hybrid.infer.bench.machine import Machine
from hybrid.infer.bench.profile import ProfileRow


def machine(n: int, read: float, f32: float, int8: float | None) -> Machine:
    return Machine("a cpu", "avx2", n, read, f32, {} if int8 is None else {"ub": int8})


def measured(test: BenchTest, n: int, rate: float, peer: float | None = None) -> scaling.Measured:
    setting = Setting("m.gguf", "jamba Q8_0", 1, 1, n, 512, "fast", "f16")
    row = SpeedRow(setting, test, (test.n_tokens / rate,), "2026-01-01T00:00:00Z")
    return scaling.Measured(row, scaling.Shares(0.25, 0.5), peer)


def op(seconds: float, gb_s: float, of_limit: float) -> ProfileRow:
    return ProfileRow("op", "kernel", 1, seconds, 0.0, gb_s, 0.0, of_limit)


def test_efficiency_is_against_the_fewest_threads_of_the_same_test() -> None:
    prompt, gen = BenchTest(512, 0, 0), BenchTest(0, 32, 0)
    rows = scaling.speed_rows(
        [measured(prompt, 2, 100.0), measured(gen, 2, 10.0), measured(prompt, 8, 300.0, 150.0), measured(gen, 8, 15.0)]
    )
    assert [row[:3] + row[4:6] for row in rows] == [
        ("pp512", "2", "100.0", "1.00", "100 %"),
        ("pp512", "8", "300.0", "3.00", "75 %"),
        ("tg32", "2", "10.0", "1.00", "100 %"),
        ("tg32", "8", "15.0", "1.50", "38 %"),
    ]
    assert [row[6:] for row in rows[:2]] == [
        ("25 %", "50 %", "arithmetic", "-", "-"),
        ("25 %", "50 %", "arithmetic", "150.0", "2.00"),
    ]
    assert {len(row) for row in rows} == {len(scaling.HEAD)}


def test_limits_have_an_efficiency_of_their_own() -> None:
    rows = scaling.limit_rows([machine(1, 10.0, 100.0, None), machine(4, 20.0, 380.0, None)])
    assert rows[1] == ("4", "20.0", "50 %", "380.0", "95 %", "-", "-")
    assert {len(row) for row in rows} == {len(scaling.LIMITS)}


def test_an_operation_is_bound_by_its_nearer_limit() -> None:
    of = machine(2, 20.0, 100.0, 300.0)
    # 8 of 20 GB/s for 3 s; 60 % of a peak for 1 s
    shares = scaling.shares_of([op(3.0, 8.0, 0.4), op(1.0, 1.0, 0.6)], of)
    assert (round(shares.memory, 6), round(shares.arithmetic, 6), shares.bound) == (0.3, 0.15, "rest")
    assert scaling.shares_of([op(1.0, 50.0, 2.5)], of) == scaling.Shares(1.0, 0.0), "from a cache: no more than all"
    assert scaling.Shares(0.4, 0.5).bound == "arithmetic" and scaling.Shares(0.6, 0.1).bound == "memory"


def test_which_numbers_of_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scaling, "default_threads", lambda: 12)
    assert scaling.counts(None, ()) == [1, 2, 4, 8, 12]
    assert scaling.counts(None, (0, 1, 2, 3)) == [1, 2, 4]
    assert scaling.counts("8,1-3", ()) == [1, 2, 3, 8]


def run(monkeypatch: pytest.MonkeyPatch, *words: str) -> int:
    monkeypatch.setattr(sys, "argv", ["scaling.py", *words])
    return int(scaling.main())


def test_a_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture, bundled: Path) -> None:
    monkeypatch.setattr(scaling, "measure_machine", lambda n: machine(n, 10.0 * n, 100.0, 300.0))
    path = converted(bundled)
    assert run(monkeypatch, str(path), "-t", "1,2", "-p", "8", "-n", "2", "-np", "3", "-r", "1") == 0
    out = capsys.readouterr().out
    assert [line.split("|")[1].strip() for line in out.split("\n\n")[1].splitlines()[2:]] == [
        "pp8",
        "pp8",
        "tg2",
        "tg2",
        "tg2 x3",
        "tg2 x3",
    ]
    assert "20.0" in out.split("\n\n")[2], "the loop's rate with two threads"


def test_what_it_refuses(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture) -> None:
    assert run(monkeypatch) == 2
    assert "error: give either a GGUF file or --shape." in capsys.readouterr().err
    assert run(monkeypatch, "m.gguf", "--cpus", "x") == 2
    assert "error: --cpus x: 'x' is none." in capsys.readouterr().err
