"""benchmarks/kernels_*.py: every case runs, at sizes that take no time."""

import sys

import kernels_attention
import kernels_matmul
import kernels_recurrent as module
import numpy as np
import pytest

from hybrid.infer.bench.machine import Machine


def test_recurrent_kernels(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(module, "measure_machine", lambda n: Machine("EPYC", "avx2", 1, 50.0, 500.0, {"vnni": 1500.0}))
    monkeypatch.setattr(module, "LARGE", 1 << 16)
    monkeypatch.setattr(module, "BATCHES", {"prompt": (5, 1), "2 seqs": (1, 2)})
    cases = [
        module.conv_case(module.conv.conv1d_silu, "tiny", 3, 40, 4, 0, module.SILU),
        module.conv_case(module.conv.conv1d_gated, "tiny", 2, 40, 3, 2, 0),
        module.mamba1_case("tiny", 2, 40, 3),
        module.mamba2_case("tiny", 2, 2, 20, 3),
        module.delta_case("tiny", 2, 4, 2, 5, 20, 1),
        module.delta_case("tiny", 2, 2, 2, 5, 20, 5),
        module.rg_lru_case("tiny", 2, 40),
    ]
    monkeypatch.setattr(module, "CASES", cases)
    monkeypatch.setattr(sys, "argv", ["kernels_recurrent.py", "--threads", "1", "--seconds", "0", "--kernel", "a"])
    module.main()
    table = [line.split("|")[1:-1] for line in capsys.readouterr().out.splitlines() if line.startswith("|")]
    kernels = [case.kernel.name for case in cases if "a" in case.kernel.name]
    assert [row[0].strip() for row in table[2:]] == [name for name in kernels for _ in range(2)]
    assert all(float(row[3]) > 0 and np.isfinite(float(row[5])) for row in table[2:])


def test_the_cases_are_models() -> None:
    """They have as many fields as the kernels read, and fitting states."""
    assert len({(case.kernel.name, case.model) for case in module.CASES}) == len(module.CASES)
    for case in module.CASES:
        assert 4 * int(np.prod(case.state)) * 16 <= module.MOST_STATE, case.model


def test_products(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    machine = Machine("EPYC", "avx2", 1, 50.0, 500.0, dict.fromkeys(("vnni", "ub", "s16", "sdot"), 1500.0))
    monkeypatch.setattr(kernels_matmul, "measure_machine", lambda n: machine)
    for name, value in (("ROWS", 32), ("LENGTH", 256), ("MEMORY", 1 << 16), ("CACHE", 1 << 12)):
        monkeypatch.setattr(kernels_matmul, name, value)
    monkeypatch.setattr(
        sys,
        "argv",
        ["kernels_matmul.py", "--threads", "1", "--seconds", "0", "--type", "Q8_0,F32", "--columns", "1,65"],
    )
    kernels_matmul.main()
    table = [line.split("|")[1:-1] for line in capsys.readouterr().out.splitlines() if line.startswith("|")]
    assert [row[0].strip() for row in table[2:]] == ["Q8_0", "F32"]
    assert all(float(cell.strip().rstrip("%")) > 0 for row in table[2:] for cell in row[1:4])


def test_attention(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    machine = Machine("EPYC", "avx2", 1, 50.0, 500.0, {"vnni": 1500.0})
    monkeypatch.setattr(kernels_attention, "measure_machine", lambda n: machine)
    monkeypatch.setattr(kernels_attention, "LARGE", 1)
    monkeypatch.setattr(kernels_attention, "PROMPT", 9)
    arguments = ["--heads", "3/1x16", "--kv-type", "f16,q8_0", "--depth", "0,70", "--threads", "1", "-r", "1"]
    monkeypatch.setattr(sys, "argv", ["kernels_attention.py", *arguments])
    kernels_attention.main()
    table = [line.split("|")[1:-1] for line in capsys.readouterr().out.splitlines() if line.startswith("|")]
    assert [row[3].strip() for row in table[2:]] == ["pp9", "tg", "pp9"] * 2
    assert all(float(row[7]) > 0 for row in table[2:])
