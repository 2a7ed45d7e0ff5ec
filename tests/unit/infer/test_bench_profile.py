"""How the times of single operations are added up."""

from types import SimpleNamespace
from typing import Any

import pytest
from hybrid.infer.bench.benchmark import BenchTest
from hybrid.infer.bench.machine import Machine
from hybrid.infer.bench.profile import summarize

MACHINE = Machine("cpu", "avx2", 2, 40.0, 200.0, {})


def op(name: str, kind: str, seconds: float, nbytes: int, flops: int, count: int = 1) -> Any:
    return SimpleNamespace(name=name, kind=kind, seconds=seconds, nbytes=nbytes, flops=flops, count=count)


def test_layers_and_steps_are_added_up() -> None:
    times = [
        op("blk.0.ssm_in", "gemv Q8_0", 0.010, 300_000_000, 500_000_000),
        op("blk.17.ssm_in", "gemv Q8_0", 0.020, 300_000_000, 500_000_000, count=2),
        op("blk.17.ssm_in", "gemv Q4_0", 0.001, 10, 20),
        op("output", "gemv Q8_0", 0.069, 1000, 0),
    ]
    result = summarize(times, BenchTest(0, 1), MACHINE)
    assert result.seconds == pytest.approx(0.1)
    assert [(row.op, row.kind) for row in result.rows] == [
        ("output", "gemv Q8_0"), ("ssm_in", "gemv Q8_0"), ("ssm_in", "gemv Q4_0"),
    ]  # fmt: skip
    row = result.rows[1]
    assert row.calls == 3
    assert row.seconds == pytest.approx(0.03)
    assert row.share == pytest.approx(0.3)
    assert row.gb_s == pytest.approx(20)
    assert row.gflop_s == pytest.approx(1e9 / 0.03 / 1e9)
    assert row.of_limit == pytest.approx(0.5)
    assert sum(row.share for row in result.rows) == pytest.approx(1)


def test_the_nearer_limit_counts() -> None:
    with_int8 = Machine("cpu", "avx2", 2, 40.0, 200.0, {"ub": 400.0, "s16": 400.0, "vnni": 400.0})
    integer, real = (
        op("a", "gemm_int_q8_0_16", 1.0, 10**9, 300 * 10**9),
        op("b", "gemm_float_f32_16", 1.0, 0, 100 * 10**9),
    )
    shares = {row.op: row.of_limit for row in summarize([integer, real], BenchTest(8, 0), with_int8).rows}
    assert shares == pytest.approx({"a": 0.75, "b": 0.5})
    assert summarize([integer], BenchTest(8, 0), MACHINE).rows[0].of_limit == pytest.approx(1.5)


def test_an_operation_without_time_has_no_rate() -> None:
    result = summarize([op("x", "k", 0.0, 100, 100)], BenchTest(1, 0), MACHINE)
    assert result.rows[0].gb_s == result.rows[0].gflop_s == result.rows[0].share == 0


def test_nothing_ran() -> None:
    assert summarize([], BenchTest(1, 0), MACHINE).rows == ()
