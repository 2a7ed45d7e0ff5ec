"""The kernels' own path through numba: callees, their types, min and max, operators of numbers."""

import subprocess
import sys
from typing import Any

import numpy as np
import pytest
from llvmlite.binding import Linkage
from reference.run_kernel import record, run

from hybrid.infer.kernels import execute
from hybrid.infer.kernels.build import compiler
from hybrid.infer.kernels.build.jit import Kernel, device
from hybrid.infer.kernels.emit.emitter import F32, I64, const, emit, ldf, ldi, stf, sti
from hybrid.infer.kernels.emit.fields import Address


@emit("i64->i64", apart=True)
def plus_one(e: Any, x: Any) -> Any:
    return e.b.add(x, const(I64, 1))


@emit("f32->f32")
def halved(e: Any, x: Any) -> Any:
    return e.b.fmul(x, const(F32, 0.5))


@device
def extremes(x, y):
    return min(x, y), max(x, y, 3)


@device
def either(x, y):
    low, high = extremes(x, y)
    return plus_one(low) if low > 0 else high


def integers(a, tid, nth, *, xy: Address, out: Address):
    x, y = ldi(xy), ldi(xy + 8)
    low, high = extremes(x, y)
    for i, value in enumerate((low, high, either(x, y), x // y, x % y)):
        sti(out + 8 * i, value)


def floats(a, tid, nth, *, xy: Address, out: Address):
    x, y = ldf(xy), ldf(xy + 4)
    total = x
    for _ in range(3):
        total += halved(y)
    stf(out, min(x, y))
    stf(out + 4, max(x, y))
    stf(out + 8, total)
    stf(out + 12, x / y)


def operators(a, tid, nth, *, xy: Address, out: Address):
    x, y = ldi(xy), ldi(xy + 8)
    z = x
    z += 3
    z *= y
    z -= x - y
    z //= 7
    z %= 5
    for i, value in enumerate((x + y, x - 3, 4 * y, x & 6, x | y, x << 3, x >> 1, x // 3, 7 % y, z)):
        sti(out + 8 * i, value)
    less = 1 if x < y else 0
    for value in (x <= 5, x > y, x >= y, x == 7, x != y):
        less = 2 * less + (1 if value else 0)
    sti(out + 80, less)


@pytest.mark.parametrize(("x", "y"), [(7, 5), (-7, 5), (5, 7), (5, 5), (-3, -4)])
def test_operators(x: int, y: int) -> None:
    """Also of constants and in place: the same as Python's."""
    out = np.zeros(11, np.int64)
    kernel = Kernel(operators)
    run(kernel, record(kernel, xy=np.array([x, y], np.int64), out=out))
    z = ((x + 3) * y - (x - y)) // 7 % 5
    bits = (x < y, x <= 5, x > y, x >= y, x == 7, x != y)
    expected = [x + y, x - 3, 4 * y, x & 6, x | y, x << 3, x >> 1, x // 3, 7 % y, z]
    assert out.tolist() == [*expected, int("".join(str(int(bit)) for bit in bits), 2)]


OTHERS = """
import sys
import numpy as np
from hybrid.infer.kernels.build import compiler
assert "scipy.linalg" not in sys.modules, "half a second"
import numba
a, b = np.arange(12.0).reshape(3, 4), np.arange(8.0).reshape(4, 2)
assert np.array_equal(numba.njit(lambda a, b: a @ b)(a, b), a @ b)
assert numba.njit(lambda a, b: np.vdot(a, b))(a[0], a[1]) == a[0] @ a[1]
assert "scipy.linalg" in sys.modules
"""


def test_who_uses_numba_beside_has_its_blas() -> None:
    pytest.importorskip("scipy")
    done = subprocess.run([sys.executable, "-c", OTHERS], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(("x", "y"), [(7, 5), (-7, 5), (7, -5), (-3, -4), (2, 9)])
def test_integers(x: int, y: int) -> None:
    out = np.zeros(5, np.int64)
    kernel = Kernel(integers)
    run(kernel, record(kernel, xy=np.array([x, y], np.int64), out=out))
    low = min(x, y)
    assert out.tolist() == [low, max(x, y, 3), low + 1 if low > 0 else max(x, y, 3), x // y, x % y]


@pytest.mark.parametrize(("x", "y"), [(1.5, -2.25), (np.nan, 1.0), (1.0, np.nan), (1.0, 0.0)])
def test_floats_as_python_has_them(x: float, y: float) -> None:
    """min and max keep the first where a comparison with NaN fails; a division by zero is no exception."""
    out = np.full(4, 9, np.float32)
    kernel = Kernel(floats)
    run(kernel, record(kernel, xy=np.array([x, y], np.float32), out=out))
    with np.errstate(all="ignore"):
        want = [min(x, y), max(x, y), x + 1.5 * y, np.float32(x) / np.float32(y)]
    np.testing.assert_array_equal(out, np.array(want, np.float32))


def mixed(a, tid, nth):
    sti(a, min(ldi(a), ldf(a)))


def test_min_of_an_integer_and_a_float_is_refused() -> None:
    with pytest.raises(AssertionError, match="min or max"):
        compiler.optimized(Kernel(mixed))


def allocating(a, tid, nth):
    sti(a, len([a, tid]))


def test_a_kernel_that_needs_python_is_refused() -> None:
    with pytest.raises(Exception, match=r"needs Python|list"):
        compiler.compile_kernel(Kernel(allocating))


def test_machine_code_refers_to_the_system_only() -> None:
    module, symbol = compiler.optimized(execute.EXECUTE)
    declared = {f.name for f in module.functions if f.is_declaration and not f.name.startswith("llvm.")}
    assert declared <= {"sched_yield", "syscall", "usleep"}
    seen = [f.name for f in module.functions if not f.is_declaration and f.linkage is Linkage.external]
    assert seen == [symbol]
