"""Elementary functions of the emitter against float64, over their whole range."""

from collections.abc import Callable
from typing import Any

import numpy as np
from reference.run_kernel import record, run

from hybrid.infer.kernels.build.jit import Kernel
from hybrid.infer.kernels.emit.emitter import F32, I64, Vec, const, emit
from hybrid.infer.kernels.emit.fields import Address, Int


@emit("i64,i64,i64->void")
def apply_tanh(e, x, y, n):
    def body(i, _):
        place = e.b.shl(i, const(I64, 2))
        e.store(e.tanh(e.load(Vec(F32, 16), x, place)), y, place)

    e.loop(n, body, step=16)


def tanh_of_the_emitter(a: int, tid: int, nth: int, *, x: Address, y: Address, n: Int) -> None:
    apply_tanh(x, y, n)


@emit("i64,i64->void")
def total_of_four_and_of_one(e, x, y):
    rows = [e.load(Vec(F32, 16), x, 64 * r) for r in range(4)]
    e.store(e.halved(rows, e.b.fadd), y)
    e.store(e.halved(rows[1:2], e.b.fadd), y, 64)
    for r, row in enumerate(rows):
        e.store(e.halving_sum(row), y, 128 + 4 * r)


def totals_of_the_emitter(a: int, tid: int, nth: int, *, x: Address, y: Address, n: Int) -> None:
    total_of_four_and_of_one(x, y)


def test_four_totals_at_once_are_those_of_single_vectors() -> None:
    y = applied(totals_of_the_emitter, np.random.default_rng(0).standard_normal(64).astype(np.float32))
    assert np.isfinite(y[32:36]).all() and len({*y[32:36].tolist()}) == 4
    assert (y[:16] == np.repeat(y[32:36], 4)).all() and (y[16:32] == y[33]).all()


def applied(function: Callable[..., Any], x: np.ndarray) -> np.ndarray:
    kernel = Kernel(function)
    x = np.resize(x, -(-x.size // 16) * 16)
    y = np.full_like(x, np.nan)
    run(kernel, record(kernel, x=x, y=y, n=x.size))
    return y


def test_tanh() -> None:
    size = np.concatenate([np.logspace(-30, 2, 200_000), np.linspace(0.4, 0.7, 50_000), [0.0, 0.55, 10, 88, 3e38]])
    x = np.concatenate([size, -size]).astype(np.float32)
    want = np.tanh(x.astype(np.float64))
    got = applied(tanh_of_the_emitter, x)[: x.size]
    ulps = np.abs(got - want) / np.spacing(np.abs(want).astype(np.float32))
    print(f"tanh: error {ulps.max():.2f} ulp")
    assert ulps.max() < 1.8
    assert (np.signbit(got) == np.signbit(x)).all()
    special = applied(tanh_of_the_emitter, np.array([np.inf, -np.inf, np.nan, -0.0], np.float32))[:4]
    assert special[0] == 1 and special[1] == -1 and np.isnan(special[2]) and np.signbit(special[3])
