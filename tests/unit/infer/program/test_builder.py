"""The values of an op's fields, and which ops are refused when a program is built."""

import ast
from pathlib import Path

import numpy as np
import pytest

import hybrid.infer.program
from hybrid.infer.kernels.build.jit import kernel
from hybrid.infer.kernels.emit.fields import Address, Counter, Float, Int
from hybrid.infer.program.builder import Batch, Builder, Ref, Rows

NO_BATCH = Batch(*[0] * 12)
INFER = Path(hybrid.infer.program.__file__ or hybrid.infer.program.__path__[0]).parents[1]


@kernel
def scaled(
    a,
    tid,
    nth,
    *,
    count: Address,
    x: Address,
    ldx: Int,
    more: Address = 0,
    ldmore: Int,
    n: Int,
    scale: Float = 1.0,
    counter: Counter,
):
    """Any kernel."""


@kernel
def three_rows(a, tid, nth, *, q: Address, k: Address, ld: Int, y: Address, ldy: Int, groups: Address = 0):
    """Any kernel with one stride for several rows."""


def builder() -> Builder:
    return Builder(4, 1, exact=False, batch=NO_BATCH)


def test_fields_become_words() -> None:
    b = builder()
    x, buffer = b.rows(20), b.buffer(100)
    b.op(scaled, count=Ref(buffer, 8), x=x.columns(5, 10), n=10, scale=1.5)
    b.op(scaled, count=99, x=1000, ldx=80, n=7)
    program = b.build()
    base = program.arena.ctypes.data
    count, start, ldx, more, ldmore, n, scale, counter = program.records[0, 1:9].tolist()
    assert (count, start) == (base + buffer.offset + 8, base + x.base.offset + 20)
    assert (ldx, more, ldmore, n) == (128, 0, 0, 10)
    assert scale == int(np.float32(1.5).view(np.uint32))
    one = int(np.float32(1.0).view(np.uint32))
    assert program.records[1, 1:8].tolist() == [99, 1000, 80, 0, 0, 7, one]
    counters = program.counters.ctypes.data
    assert (counter, program.records[1, 8]) == (counters, counters + 64), "each op has one of its own"
    assert not program.records[:, 9:].any()


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({"x": 1, "ldx": 4, "n": 1}, "op scaled: count is missing. Its fields: count, x, ldx, more,"),
        ({"count": 1, "x": 1, "n": 1}, "ldx is missing"),
        ({"count": 1, "x": None, "ldx": 4, "n": 1}, "x is missing"),
        ({"count": 1, "x": 1, "ldx": 4, "n": 1, "eps": 0.5}, "there is no field eps"),
        ({"count": 1, "x": 1, "ldx": 4, "n": 1, "eps": None}, "there is no field eps"),
        ({"count": 1, "x": 1, "ldx": 4, "n": 1, "scale": 1}, "scale is a float, not 1"),
        ({"count": 1, "x": 1, "ldx": 4, "n": 1.0}, "n is an integer, not 1.0"),
        ({"count": 1, "x": 0.5, "ldx": 4, "n": 1}, "x is an address, not 0.5"),
        ({"count": 1, "x": 1, "ldx": Ref(8), "n": 1}, "ldx is an integer, not Ref"),
        ({"count": 1, "x": Rows(8, 2, 8), "ldx": 8, "n": 1}, "ldx is given by x, and again"),
        ({"count": 1, "x": 1, "ldx": 4, "n": 1, "more": 8}, "ldmore is missing"),
        ({"x": 1, "n": 2.0, "ld": 3}, "there is no field ld; count is missing; ldx is missing; n is an integer"),
    ],
)
def test_an_op_that_does_not_fit_its_kernel_is_refused(fields: dict, error: str) -> None:
    b = builder()
    with pytest.raises(TypeError, match=error):
        b.op(scaled, **fields)
    assert not b.ops


def test_no_field_can_be_given_by_position() -> None:
    with pytest.raises(TypeError, match="positional"):
        builder().op(scaled, 1, 2)  # type: ignore[misc]


def test_rows_give_their_strides() -> None:
    b = builder()
    both, y = b.rows(40), b.rows(3)
    b.op(three_rows, q=both.columns(0, 8), k=both.columns(8, 8), y=y)
    program = b.build()
    assert program.records[0, 3] == both.ld
    assert program.records[0, 5] == y.ld != both.ld
    with pytest.raises(TypeError, match="ld is given by k, and again with another value"):
        b.op(three_rows, q=both, k=y, y=y)


def test_an_op_does_what_it_does_for_each_group_of_columns() -> None:
    b, y = builder(), Rows(8, 2, 8)
    groups = Ref(b.buffer(56))
    b.op(three_rows, nbytes=7, flops=2, q=y, k=y, y=y, groups=groups)
    b.op(three_rows, nbytes=7, flops=2, q=y, k=y, y=y, groups=1 << 20)
    b.keep_groups()
    program = b.build()
    start = groups.base.offset
    program.arena[start : start + 56].view(np.int64)[:] = (2, 4, 0, 3, 5, 3, 10)
    assert program.work_of(program.ops[0], 99, []) == (14, 26)
    assert program.work_of(program.ops[1], 99, []) == (7, 198)


def test_what_is_kept_has_memory_of_its_own_to_the_end() -> None:
    for kept in (False, True):
        b = builder()
        first, second = b.rows(16), b.rows(16)
        if kept:
            b.keep(first)
        b.op(scaled, count=8, x=first, n=16)
        b.op(scaled, count=8, x=second, n=16)
        program = b.build()
        assert (program.records[0, 2] == program.records[1, 2]) != kept


def calls_of_op(path: Path) -> list[ast.Call]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    return [call for call in calls if isinstance(call.func, ast.Attribute) and call.func.attr == "op"]


def test_ops_name_their_fields() -> None:
    calls = {path: calls_of_op(path) for path in INFER.rglob("*.py")}
    assert sum(map(len, calls.values())) > 50
    for path, op_calls in calls.items():
        for call in op_calls:
            assert len(call.args) == 1 and not isinstance(call.args[0], ast.Starred), f"{path}:{call.lineno}"
