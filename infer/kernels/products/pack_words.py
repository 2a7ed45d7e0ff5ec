"""Activations as words, codes of 13 bits, for the tiles of pack.py.

x = d * q with d = max |x| / MOST_WORD of a block of WORD_BLOCK values, q = x / d rounded to nearest even. The products
of a block fit 32 bits, also if all codes of weights and activations are the largest.
"""

from math import isqrt

from ..emit.emitter import F32, I32, I64, Emitter, Value, Vec, const, emit
from ..emit.isa import ISA
from .pack_codes import as_words, codes_of, maximum, steps_of

WORD_BLOCK = 128
MOST_WORD = isqrt(((1 << 31) - 1) // WORD_BLOCK)
STEPS = WORD_BLOCK // 2  # dwords of a block
V8F, V8I = Vec(F32, 8), Vec(I32, 8)


def make_word_columns(isa: ISA | None = None):
    """Piece: blocks b0 .. b1 - 1 of 8 columns of n values, whose row addresses are in `rows`, -> a tile of `cols`
    columns. After the n-th value come zeros."""

    def word_columns(e: Emitter, rows, out, cols, b0, b1, n_blocks, n):
        b = e.b
        line = b.shl(cols, const(I64, 2))  # bytes of one step
        sources = [e.load(I64, rows, 8 * j) for j in range(8)]
        slots = b.ptrtoint(e.stack(V8F, 16), I64)
        copies = [b.add(slots, const(I64, 64 * j)) for j in range(8)]  # the last values of a column, then zeros

        def put(v: Value, base: Value, k: Value | int) -> None:
            e.store(v, base, b.mul(line, const(I64, k) if isinstance(k, int) else k))

        def block(i: Value, _: list[Value]) -> None:
            base = e.at(out, b.mul(i, b.mul(line, const(I64, STEPS + 1))))
            first = b.shl(i, const(I64, WORD_BLOCK.bit_length() - 1))
            left = b.sub(n, first)
            end = e.intr("smin", const(I64, WORD_BLOCK), b.and_(b.add(left, const(I64, 15)), const(I64, -16)))

            def sixteen(k: Value) -> list[list[Value]]:
                """Values k .. k + 15 of the block, of each column: two vectors."""
                offset, exist = b.shl(b.add(first, k), const(I64, 2)), b.sub(left, k)
                partly = b.icmp_signed("<", exist, const(I64, 16))
                with b.if_then(partly):
                    for p, copy in zip(sources, copies, strict=True):
                        for h in (0, 32):
                            e.store(const(V8F, 0.0), copy, h)
                        value = lambda o, _, p=p, copy=copy: e.store(e.load(F32, e.at(p, offset), o), copy, o)
                        e.loop(b.shl(exist, const(I64, 2)), value, step=4)
                places = [b.select(partly, c, b.add(p, offset)) for p, c in zip(sources, copies, strict=True)]
                return [[e.load(V8F, p, h) for h in (0, 32)] for p in places]

            def larger(k: Value, peaks: list[Value]) -> list[Value]:
                pairs = [[b.and_(b.bitcast(v, V8I), const(V8I, 0x7FFFFFFF)) for v in some] for some in sixteen(k)]
                return [maximum(e, peak, maximum(e, *pair)) for peak, pair in zip(peaks, pairs, strict=True)]

            peaks = e.reduce8(e.loop(end, larger, [const(V8I, 0)] * 8, step=16), lambda a, c: maximum(e, a, c))
            d, inverse = steps_of(e, b.bitcast(maximum(e, *peaks), V8F), MOST_WORD)
            put(d, base, STEPS)
            times = [e.splat(e.lane(inverse, j), 8) for j in range(8)]

            def words(k: Value, _: list[Value]) -> None:
                columns = zip(sixteen(k), times, strict=True)
                packed = [as_words(e, [codes_of(e, v, t, MOST_WORD) for v in some]) for some, t in columns]
                lanes = e.transpose([v for v, _ in packed])
                for s in range(8):
                    put(lanes[packed[0][1].index(s)], base, b.add(b.lshr(k, const(I64, 1)), const(I64, s)))

            e.loop(end, words, step=16)
            e.loop(STEPS, lambda s, _: put(const(V8I, 0), base, s), start=b.lshr(end, const(I64, 1)))

        e.loop(b1, block, start=b0)

    return emit("i64,i64,i64,i64,i64,i64,i64->void", isa)(word_columns)
