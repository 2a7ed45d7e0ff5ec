"""Unpacking of weight rows for the products with many columns: codes or floats, chain after chain (see gemv.py)."""

from collections.abc import Callable

from hybrid.quant.ggml.types import GGMLType

from ..emit.emitter import F32, I8, I16, I32, I64, Emitter, Value, Vec, const, emit
from ..emit.isa import ISA
from ..weights import FLOAT_BLOCKS, INT_BLOCKS, LOAD1, LOAD16, IntBlock, eight_groups, one_block, whole
from .gemm_schemes import Scheme
from .pack_codes import codes_of, maximum, steps_of
from .pack_words import MOST_WORD, WORD_BLOCK

V8F, V32I8, V32I16 = Vec(F32, 8), Vec(I8, 32), Vec(I16, 32)
V16I16, V16I32 = Vec(I16, 16), Vec(I32, 16)


def _stored(e: Emitter, block: IntBlock, how: Scheme, codes: Value, subs: Value | None, group: int) -> Value:
    """Codes of a group as the tile reads them: u8 or s8 codes plus how.add, or s16 codes times their factors."""
    b = e.b
    if how.name == "s16":
        wide = b.sext(codes, V32I16) if block.signed else b.zext(codes, V32I16)
        if how.add:
            wide = b.add(wide, const(V32I16, how.add))
        if subs is not None:
            wide = b.mul(wide, e.shuffle(subs, [2 * group] * 16 + [2 * group + 1] * 16))
        return wide
    if how.add == 128:
        return b.xor(codes, const(V32I8, -128))
    return b.add(codes, const(V32I8, how.add)) if how.add else codes


def make_int_unpack(kind: GGMLType, how: Scheme, isa: ISA | None = None):  # noqa: C901  its kernel counts, too
    """Piece: a row of blocks -> records (see make_int_tile); block k is number k // 16 of chain k % 16."""
    block = INT_BLOCKS[kind]

    def int_unpack(e: Emitter, source, out, chain_stride, K):  # noqa: C901  one loop nest
        b = e.b
        n_blocks = b.lshr(K, const(I64, 5))
        shift = block.groups.bit_length() - 1
        beside = 32 * how.code_bytes

        def record(i: Value) -> Value:
            chain, turn = b.and_(i, const(I64, 15)), b.lshr(i, const(I64, 4))
            nbytes = how.record * how.rows_together
            return e.at(out, b.add(b.mul(chain, chain_stride), b.mul(turn, const(I64, nbytes))))

        def put(codes: Value, numbers: list[Value], place: Value) -> None:
            if how.rows_together == 1:
                e.store(codes, place)
                at = beside
                for v in numbers:
                    e.store(v, place, at)
                    at += 8 if v.type == I64 else 4
                return
            octets = b.bitcast(codes, Vec(I64, 4))
            for k in range(4):
                e.store(e.lane(octets, k), place, 16 * k)
            for k, v in enumerate(numbers):
                e.store(e.splat(v, 2), place, 2 * beside + 16 * k)

        def eight(turn, _):
            i = b.shl(turn, const(I64, 3))
            p = e.at(source, b.mul(b.lshr(i, const(I64, shift)), const(I64, block.nbytes)))
            for line in range(0, 8 // block.groups * block.nbytes, 64):
                e.prefetch(p, 4096 + line)
            g = whole(e, eight_groups(e, block, p))
            numbers = [g.scale]
            if how.factors == 1:
                numbers.append(b.bitcast(g.subs, Vec(I32, 8)))
            elif how.factors:
                wide = b.sext(g.subs, Vec(I32, 16))
                if how.name == "ub":  # the factor in both i16 of a dword
                    wide = b.or_(b.and_(wide, const(wide.type, 0xFFFF)), b.shl(wide, const(wide.type, 16)))
                if how.rows_together == 1:
                    numbers.append(b.bitcast(wide, Vec(I64, 8)))
                else:
                    numbers += [e.shuffle(wide, list(range(h, 16, 2))) for h in (0, 1)]
            numbers += [b.fneg(v) for v in g.mins]
            first = record(i)
            for k, c in enumerate(g.codes):
                place = e.at(first, b.mul(chain_stride, const(I64, k)))
                put(_stored(e, block, how, c, g.subs, k), [e.lane(v, k) for v in numbers], place)

        turns = b.lshr(n_blocks, const(I64, 3))
        e.loop(turns, eight)
        if block.weights < 256:

            def single(i, _):
                p = e.at(source, b.mul(b.lshr(i, const(I64, shift)), const(I64, block.nbytes)))
                groups, d, mins = one_block(e, block, p)
                for k, c in enumerate(groups):
                    numbers = [d, *(b.fneg(v) for v in mins)]
                    put(_stored(e, block, how, c, None, 0), numbers, record(b.add(i, const(I64, k))))

            e.loop(n_blocks, single, start=b.shl(turns, const(I64, 3)), step=block.groups)

    return emit("i64,i64,i64,i64->void", isa)(int_unpack)


def make_float_unpack(kind: GGMLType):  # noqa: C901  its kernel counts, too
    """Piece: K elements (a multiple of 16) of a row -> f32; element k is number k // 16 of chain k % 16."""
    block = FLOAT_BLOCKS[kind]

    def float_unpack(e: Emitter, source, out, chain_stride, K):  # noqa: C901  one loop nest
        b = e.b

        def transposed(vectors: list[Value], turn: Value) -> None:
            """Store 8 vectors of 16 elements as numbers turn .. turn + 7 of the 16 chains."""
            for h in (0, 8):
                for j, v in enumerate(e.transpose([e.part(v, h, 8) for v in vectors])):
                    e.store(v, out, b.add(b.mul(chain_stride, const(I64, h + j)), b.shl(turn, const(I64, 2))))

        batch = max(1, 128 // block.weights)  # blocks that make whole groups of 8 vectors

        def whole(i, _):
            p = e.at(source, b.mul(i, const(I64, batch * block.nbytes)))
            for line in range(0, batch * block.nbytes, 64):
                e.prefetch(p, 4096 + line)
            vectors: list[Value] = []
            for k in range(batch):
                vectors += block.load(e, e.at(p, k * block.nbytes))
            turns = len(vectors)
            for first in range(0, turns, 8):
                transposed(vectors[first : first + 8], b.add(b.mul(i, const(I64, turns)), const(I64, first)))

        batches = b.udiv(K, const(I64, batch * block.weights))
        e.loop(batches, whole)
        if batch == 1:
            return
        turns = block.weights // 16
        buffer = e.stack(F32, block.weights)

        def rest(i, _):
            for k, v in enumerate(block.load(e, e.at(source, b.mul(i, const(I64, block.nbytes))))):
                e.store(v, buffer, 64 * k)
            for k in range(block.weights):
                chain = b.mul(chain_stride, const(I64, k % 16))
                turn = b.shl(b.add(b.mul(i, const(I64, turns)), const(I64, k // 16)), const(I64, 2))
                e.store(e.load(F32, buffer, 4 * k), out, b.add(chain, turn))

        blocks = b.udiv(K, const(I64, block.weights))
        e.loop(blocks, rest, start=b.mul(batches, const(I64, batch)))
        if kind in LOAD1:
            size = block.nbytes // 32

            def element(k, _):
                turn = b.shl(b.lshr(k, const(I64, 4)), const(I64, 2))
                place = b.add(b.mul(chain_stride, b.and_(k, const(I64, 15))), turn)
                e.store(LOAD1[kind](e, e.at(source, b.mul(k, const(I64, size)))), out, place)

            e.loop(K, element, start=b.shl(blocks, const(I64, 5)))

    return emit("i64,i64,i64,i64->void")(float_unpack)


def make_word_unpack(kind: GGMLType, isa: ISA | None = None):
    """Piece: K floats (a multiple of 16) of a row -> records of WORDS: codes, zeros after the last, and f32 d; each
    record is a chain."""
    load, size = LOAD16[kind], FLOAT_BLOCKS[kind].nbytes // FLOAT_BLOCKS[kind].weights

    def word_unpack(e: Emitter, source, out, chain_stride, K):
        b = e.b

        def record(k: Value, _: list[Value]) -> None:
            begin = b.mul(k, const(I64, WORD_BLOCK))
            _word_record(
                e, lambda i: load(e, e.at(source, b.mul(b.add(begin, i), const(I64, size)))),
                e.intr("smin", const(I64, WORD_BLOCK), b.sub(K, begin)), e.at(out, b.mul(k, chain_stride)),
            )  # fmt: skip

        e.loop(b.udiv(b.add(K, const(I64, WORD_BLOCK - 1)), const(I64, WORD_BLOCK)), record)

    return emit("i64,i64,i64,i64->void", isa)(word_unpack)


def _word_record(e: Emitter, sixteen: Callable[[Value], Value], n: Value, out: Value) -> None:
    """A record of WORDS. sixteen(i): <16 x f32>, weights i .. i + 15 of its n."""
    b = e.b

    def larger(i: Value, peak: list[Value]) -> list[Value]:
        return [maximum(e, peak[0], b.and_(b.bitcast(sixteen(i), V16I32), const(V16I32, 0x7FFFFFFF)))]

    (peak,) = e.loop(n, larger, [const(V16I32, 0)], step=16)
    for half in (8, 4, 2, 1):
        peak = maximum(e, e.part(peak, 0, half), e.part(peak, half, half))
    d, inverse = steps_of(e, b.bitcast(e.lane(peak, 0), F32), MOST_WORD)
    times = e.splat(inverse, 8)

    def words(i: Value, _: list[Value]) -> None:
        v = sixteen(i)
        wide = e.cat(*(codes_of(e, e.part(v, h, 8), times, MOST_WORD) for h in (0, 8)))
        e.store(b.trunc(wide, V16I16), out, b.shl(i, const(I64, 1)))

    e.loop(n, words, step=16)
    e.loop(WORD_BLOCK, lambda i, _: e.store(const(V16I16, 0), out, b.shl(i, const(I64, 1))), start=n, step=16)
    e.store(d, out, 2 * WORD_BLOCK)
