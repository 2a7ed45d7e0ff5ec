"""What a kernel may declare, and that it reads what it declared."""

import numpy as np
import pytest
from reference.run_kernel import record, run

from hybrid.infer.kernels.build.jit import Kernel, variant
from hybrid.infer.kernels.build.kernel import with_globals
from hybrid.infer.kernels.emit.emitter import I64, const, emit, ldi, stf, sti
from hybrid.infer.kernels.emit.fields import RECORD, Address, Counter, Fields, Float, Int, Layout


@emit("i64->i64")
def by_name(e, a):
    """100 n + more, as a piece reads them."""
    f = Fields(e, a, Layout.of(sums))
    return e.b.add(e.b.mul(f.n, const(I64, 100)), f.more)


@emit("i64->f32")
def factor(e, a):
    return Fields(e, a, Layout.of(sums)).scale


def sums(a, tid, nth, *, out: Address, n: Int, scale: Float = 1.0, counter: Counter, more: Int = 7):
    sti(out, n + more)
    stf(out + 8, scale)
    sti(out + 16, ldi(counter))
    sti(out + 24, by_name(a))
    stf(out + 32, factor(a))


def run_sums(kernel: Kernel, **fields: int | float) -> tuple[float, ...]:
    out = np.full(5, -1, np.int64)
    run(kernel, record(kernel, out=out, **fields))
    a, c, d = (int(out[i]) for i in (0, 2, 3))
    return a, float(out[1:2].view(np.float32)[0]), c, d, float(out[4:5].view(np.float32)[0])


def test_parameters_and_pieces_read_the_same_fields() -> None:
    assert run_sums(Kernel(sums), n=5, scale=-2.25, more=-6) == (-1, -2.25, 0, 494, -2.25)
    assert run_sums(Kernel(sums), n=-5) == (2, 1.0, 0, -493, 1.0)


def test_a_variant_without_a_field() -> None:
    less = variant(sums, "less", without=("more",), by_name=by_name)
    with pytest.raises(TypeError, match=r"op less: there is no field more\. Its fields: out, n, scale, counter\."):
        record(less, out=0, n=1, more=2)
    with pytest.raises(AssertionError, match="cannot remove"):
        variant(sums, "less", without=("other",), by_name=by_name)


@emit("i64->i64")
def nothing(e, a):
    return const(I64, 0)


def test_what_a_variant_does_not_have_is_zero() -> None:
    less = variant(sums, "less", without=("more", "scale"), by_name=nothing, factor=factor)
    out = np.full(5, -1, np.int64)
    run(less, record(less, out=out, n=3))
    assert out[0] == 3 and out[1:2].view(np.float32)[0] == 0.0


def test_declared_apart_under_other_names() -> None:
    def declaration(*, first: Int, place: Address, size: Int):
        """In another order than the template's, with a field that only pieces read."""

    def template(a, tid, nth, *, out: Address, n: Int):
        sti(out, n)

    kernel = Kernel(with_globals(template, "apart", {}), declaration=declaration, names={"out": "place", "n": "size"})
    out = np.zeros(1, np.int64)
    run(kernel, record(kernel, first=1, place=out, size=9))
    assert out[0] == 9

    def other(*, place: Address, size: Float):
        """A float in the place of an integer."""

    with pytest.raises(AssertionError, match="reads size, an integer"):
        Kernel(with_globals(template, "apart", {}), declaration=other, names={"out": "place", "n": "size"})


def test_a_piece_cannot_read_what_is_not_declared() -> None:
    with pytest.raises(AttributeError, match="sums has no field length"):
        _ = Fields(None, None, Layout.of(sums)).length  # type: ignore[arg-type]


def test_declarations_that_are_refused() -> None:
    def named(a, tid, nth, *, name: Address):
        pass

    def untyped(a, tid, nth, *, x):
        pass

    scope: dict = {"Int": Int}
    exec(f"def many(a, tid, nth, *, {', '.join(f'f{i}: Int' for i in range(RECORD))}): pass", scope)
    for function, message in (
        (named, r"fields cannot have the names \['name'\]"),
        (untyped, "field x is not an Address, Int"),
        (scope["many"], f"{RECORD} fields, a record has room for {RECORD - 1}"),
    ):
        with pytest.raises(AssertionError, match=message):
            Kernel(function)
