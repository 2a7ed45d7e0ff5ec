"""Rows times a matrix of their own, and rows times rows."""

from ..build.jit import kernel
from ..emit.emitter import F32, I64, Vec, const, emit, ldi
from ..emit.fields import Address, Int
from .elementwise import CHUNK, over_values


@emit("i64,i64,i64,i64,i64->void")
def _product(e, x, matrix, out, n_in, n):
    b = e.b

    def some(ty, spread):
        def one(o):
            def add(i, total):
                place = b.add(o, b.shl(b.mul(i, n), const(I64, 2)))
                return [e.fma(spread(e.load(F32, x, b.shl(i, const(I64, 2)))), e.load(ty, matrix, place), total[0])]

            (total,) = e.loop(n_in, add, [const(ty, 0.0)])
            e.store(total, out, o)

        return one

    over_values(e, n, some(Vec(F32, 16), lambda v: e.splat(v, 16)), some(F32, lambda v: v))


@kernel
def token_products(
    a, tid, nth, *, count: Address, x: Address, ldx: Int, matrix: Address, ldmatrix: Int, out: Address, ldout: Int,
    n_in: Int, n: Int,
):  # fmt: skip
    """out[t] = x[t] M[t]: x f32 [row][n_in], matrix f32 [row][n_in][n], out f32 [row][n]; sums in ascending order."""
    for t in range(tid, ldi(count), nth):
        _product(x + t * ldx, matrix + t * ldmatrix, out + t * ldout, n_in, n)


def _multiply(biased):
    def piece(e, x, y, bias, n):
        def some(ty):
            def one(o):
                factor = e.load(ty, y, o)
                factor = e.b.fadd(factor, e.load(ty, bias, o)) if biased else factor
                e.store(e.b.fmul(e.load(ty, x, o), factor), x, o)

            return one

        over_values(e, n, some(Vec(F32, 16)), some(F32))

    return emit("i64,i64,i64,i64->void")(piece)


_plain, _biased = _multiply(False), _multiply(True)


@kernel
def multiply_rows(
    a, tid, nth, *, count: Address, x: Address, ldx: Int, y: Address, ldy: Int, bias: Address = 0, n: Int
):
    """x *= y + bias: x, y f32 [row][n], bias f32 [n]; 0: none."""
    per_row = (n + CHUNK - 1) // CHUNK
    for i in range(tid, ldi(count) * per_row, nth):
        t, o = i // per_row, i % per_row * CHUNK
        size, o = min(CHUNK, n - o), 4 * o
        if bias:
            _biased(x + t * ldx + o, y + t * ldy + o, bias + o, size)
        else:
            _plain(x + t * ldx + o, y + t * ldy + o, bias, size)
