"""SIMD code for all targets: a small emitter over llvmlite IR, and `emit`, which makes a function that writes IR
callable from numba-compiled kernels.

Vectors are LLVM vectors of any width; LLVM splits vectors wider than a register. No fast-math flag is ever set: fma and
the order of sums are written out, so that the bits of a result do not depend on the target.
"""

from collections.abc import Callable, Sequence
from typing import Any

from llvmlite import ir

from .core import F16, F32, I1, I8, I16, I32, I64, PTR, VOID, Value, Vec, const
from .elementary import ElementaryFunctions
from .isa import ISA

__all__ = [
    "F32", "I1", "I8", "I16", "I32", "I64", "VOID", "Emitter", "Piece", "Value", "Vec", "atomic_add",
    "atomic_load", "call_kernel", "const", "emit", "ldf", "ldi", "pause", "sched_yield", "stf", "sti",
]  # fmt: skip


class _BFloat(ir.types.Type):
    """LLVM's bfloat type, which llvmlite lacks."""

    intrinsic_name = "bf16"

    def _to_string(self) -> str:
        return "bfloat"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _BFloat)

    def __hash__(self) -> int:
        return hash(_BFloat)


class Emitter(ElementaryFunctions):
    """Writes IR at the position of an IRBuilder; adds number formats, dot products, tables and reductions."""

    # --- F16 and BF16 ---
    def half(self, bits: Value) -> Value:
        """binary16 in i16, scalar or vector -> f32."""
        if self.isa.arch == "any" or (self.isa.x86 and self.isa.dot == "plain"):
            return self._half_in_integers(bits)
        if isinstance(bits.type, Vec):
            n = bits.type.count
            return self.b.fpext(self.b.bitcast(bits, Vec(F16, n)), Vec(F32, n))
        return self.b.fpext(self.b.bitcast(bits, F16), F32)

    def _half_in_integers(self, bits: Value) -> Value:
        """`half` without F16C, where LLVM would call a function that not every system has."""
        b, n = self.b, bits.type.count if isinstance(bits.type, Vec) else 0
        ints, floats = (Vec(I32, n), Vec(F32, n)) if n else (I32, F32)
        wide = b.zext(bits, ints)
        size = b.and_(wide, const(ints, 0x7FFF))
        shifted = b.shl(size, const(ints, 13))
        # the exponent grows by 112; a number below 2^-14 becomes normal on the way
        finite = b.bitcast(b.fmul(b.bitcast(shifted, floats), const(floats, 2.0**112)), ints)
        special = b.icmp_unsigned(">=", size, const(ints, 0x7C00))
        size = b.select(special, b.or_(shifted, const(ints, 0x7F800000)), finite)
        return b.bitcast(b.or_(size, b.shl(b.and_(wide, const(ints, 0x8000)), const(ints, 16))), floats)

    def bfloat(self, bits: Value) -> Value:
        """bfloat16 in a vector of i16 -> f32."""
        n = bits.type.count
        wide = self.b.shl(self.b.zext(bits, Vec(I32, n)), const(Vec(I32, n), 16))
        return self.b.bitcast(wide, Vec(F32, n))

    def dot_pairs(self, acc: Value, a: Value, c: Value) -> Value:
        """<16 x f32> += two products of BF16: of the high halves of a lane's dwords, then of the low halves.

        Without the instruction: two fma, as its description says. The instruction also treats subnormal numbers as
        zero, so processors may differ below 2^-126.
        """
        if self.isa.bf16 and self.isa.x86:
            bf16s = Vec(_BFloat(), 32)
            a, c = self.b.bitcast(a, bf16s), self.b.bitcast(c, bf16s)
            return self.call("llvm.x86.avx512bf16.dpbf16ps.512", acc.type, acc, a, c)
        ty = Vec(I32, acc.type.count)
        a, c = self.b.bitcast(a, ty), self.b.bitcast(c, ty)
        high = [self.b.bitcast(self.b.and_(v, const(ty, -65536)), acc.type) for v in (a, c)]
        low = [self.b.bitcast(self.b.shl(v, const(ty, 16)), acc.type) for v in (a, c)]
        return self.fma(low[0], low[1], self.fma(high[0], high[1], acc))

    def to_bf16(self, x: Value) -> Value:
        """f32 lanes -> BF16 in i16, rounded to nearest even; NaN stays NaN."""
        ty = Vec(I32, x.type.count)
        bits = self.b.bitcast(x, ty)
        odd = self.b.and_(self.b.lshr(bits, const(ty, 16)), const(ty, 1))
        rounded = self.b.lshr(self.b.add(bits, self.b.add(odd, const(ty, 0x7FFF))), const(ty, 16))
        quiet = self.b.or_(self.b.lshr(bits, const(ty, 16)), const(ty, 64))
        return self.b.trunc(self.b.select(self.b.fcmp_unordered("uno", x, x), quiet, rounded), Vec(I16, ty.count))

    # --- NEON ---
    def sdot(self, acc: Value, a: Value, c: Value) -> Value:
        """<4 x i32> += sums of four neighbouring products of <16 x i8>, signed."""
        if self.isa.dot == "neon":
            return self.call("llvm.aarch64.neon.sdot.v4i32.v16i8", acc.type, acc, a, c)
        wide = Vec(I32, 16)
        products = self.b.mul(self.b.sext(a, wide), self.b.sext(c, wide))
        for k in range(4):
            acc = self.b.add(acc, self.shuffle(products, list(range(k, 16, 4))))
        return acc

    def add_neighbours(self, a: Value, c: Value) -> Value:
        """Two vectors of integers -> the sums of neighbours of a, then of c."""
        n = a.type.count
        if self.isa.dot == "neon" and n * a.type.element.width == 128:
            return self.call(f"llvm.aarch64.neon.addp.{self._suffix(a.type)}", a.type, a, c)
        even, odd = (self.shuffle(a, list(range(h, 2 * n, 2)), c) for h in (0, 1))
        return self.b.add(even, odd)

    # --- tables ---
    def table(self, name: str, content: bytes) -> Value:
        """Address of constant bytes, one copy per module and `name`."""
        name = f"hybrid.{name}"
        constant = self.module.globals.get(name)
        if constant is None:
            ty = ir.ArrayType(I8, len(content))
            constant = ir.GlobalVariable(self.module, ty, name)
            constant.linkage, constant.global_constant, constant.unnamed_addr, constant.align = (
                "internal",
                True,
                True,
                64,
            )
            constant.initializer = ir.Constant(ty, bytearray(content))
        return self.b.inttoptr(self.b.ptrtoint(constant, I64), PTR)

    def lookup16(self, values: Sequence[int], index: Value) -> Value:
        """values[i] for every i (0 .. 15) of a vector of 16, 32 or, on paths of 16 lanes, 64 i8."""
        ty = index.type
        assert len(values) == 16 and ty.count in (16, 32, 64)
        if self.isa.x86 and self.isa.dot != "plain":
            name = {16: "ssse3.pshuf.b.128", 32: "avx2.pshuf.b", 64: "avx512.pshuf.b.512"}[ty.count]
            return self.call(f"llvm.x86.{name}", ty, const(ty, list(values) * (ty.count // 16)), index)
        if self.isa.arch == "arm64":
            half = Vec(I8, 16)
            table = const(half, list(values))
            parts = [self.part(index, k, 16) for k in range(0, ty.count, 16)]
            looked_up = [self.call("llvm.aarch64.neon.tbl1.v16i8", half, table, p) for p in parts]
            return looked_up[0] if ty.count == 16 else self.cat(looked_up[0], looked_up[1])
        # a tree of selections by the bits of the index, which needs no special instruction
        candidates = [const(ty, v) for v in values]
        for bit in range(4):
            chosen = self.b.icmp_unsigned("!=", self.b.and_(index, const(ty, 1 << bit)), const(ty, 0))
            candidates = [self.b.select(chosen, candidates[i + 1], candidates[i]) for i in range(0, len(candidates), 2)]
        return candidates[0]

    # --- reductions in a documented order ---
    def halving_sum(self, v: Value) -> Value:
        """Sum of the lanes: the upper half is added to the lower half until one lane is left."""
        n, is_int = v.type.count, isinstance(v.type.element, ir.IntType)
        while n > 1:
            n //= 2
            lo, hi = self.part(v, 0, n), self.part(v, n, n)
            v = self.b.add(lo, hi) if is_int else self.b.fadd(lo, hi)
        return self.lane(v, 0)

    def halving_max(self, v: Value) -> Value:
        n = v.type.count
        while n > 1:
            n //= 2
            v = self.intr("maxnum", self.part(v, 0, n), self.part(v, n, n))
        return self.lane(v, 0)

    def halved(self, rows: Sequence[Value], combine: Callable[[Value, Value], Value]) -> Value:
        """1 or 4 vectors of 16 lanes -> a vector whose lanes 4 i .. 4 i + 3 (of 1: all) are the lanes of vector i
        combined, in the order of `halving_sum`. Of 4 it takes less than half as long as four times of 1."""
        x, steps = rows[0], [8, 4, 2, 1]
        if len(rows) > 1:
            half, quarter = ([i % n + 2 * n * (i // n) for i in range(16)] for n in (8, 4))
            low, high = (
                combine(self.shuffle(a, half, c), self.shuffle(a, [i + 8 for i in half], c))
                for a, c in (rows[:2], rows[2:])
            )
            x = combine(self.shuffle(low, quarter, high), self.shuffle(low, [i + 4 for i in quarter], high))
            steps = [2, 1]
        for step in steps:
            x = combine(x, self.shuffle(x, [i ^ step for i in range(16)]))
        return x

    def merged(self, rows: Sequence[Value], step: int, combine: Callable[[Value, Value], Value]) -> list[Value]:
        """Vectors of 8 32-bit lanes -> half as many, lanes combined in pairs within each half. After step 0 each half
        holds lanes of 2 rows in turn; after step 1, applied to that result, one lane for each of 4 rows."""
        # interleaved, not even and odd lanes: LLVM would make horizontal additions, which are slow everywhere
        singles = [0, 8, 1, 9, 4, 12, 5, 13], [2, 10, 3, 11, 6, 14, 7, 15]
        pairs = [0, 1, 8, 9, 4, 5, 12, 13], [2, 3, 10, 11, 6, 7, 14, 15]
        low, high = (singles, pairs)[step]
        return [
            combine(self.shuffle(rows[i], low, rows[i + 1]), self.shuffle(rows[i], high, rows[i + 1]))
            for i in range(0, len(rows), 2)
        ]

    def even_odd(self, v: Value) -> tuple[Value, Value]:
        """<16 x i16> -> (even lanes, odd lanes), each <8 x i32>."""
        ty = Vec(I32, 8)
        pairs, sixteen = self.b.bitcast(v, ty), const(ty, 16)
        return self.b.ashr(self.b.shl(pairs, sixteen), sixteen), self.b.ashr(pairs, sixteen)

    def lower_upper(self, a: Value, c: Value) -> tuple[Value, Value]:
        """Two vectors of 8 lanes -> (their first halves, their second halves), each one vector."""
        return self.shuffle(a, [0, 1, 2, 3, 8, 9, 10, 11], c), self.shuffle(a, [4, 5, 6, 7, 12, 13, 14, 15], c)

    def reduce8(self, rows: Sequence[Value], combine: Callable[[Value, Value], Value]) -> tuple[Value, Value]:
        """8 vectors of 8 32-bit lanes -> two: lane i holds the first, or the last, four lanes of vector i combined."""
        return self.lower_upper(*self.merged(self.merged(rows, 0, combine), 1, combine))

    def chain_total(self, chains: Sequence[Value]) -> Value:
        """Total of the 16 chains (partial sums) of a row, always in this order.

        q_i = (((0 + c_i) + c_(i+4)) + c_(i+8)) + c_(i+12);  total = (((0 + q_0) + q_1) + q_2) + q_3
        `chains`: 16 values of one type.
        """
        zero = const(chains[0].type, 0.0)
        total = zero
        for i in range(4):
            q = zero
            for k in range(4):
                q = self.b.fadd(q, chains[i + 4 * k])
            total = self.b.fadd(total, q)
        return total

    def chain_total_lanes(self, v: Value) -> Value:
        """`chain_total` of the 16 lanes of one vector, as a scalar."""
        four = const(Vec(F32, 4), 0.0)
        for k in range(4):
            four = self.b.fadd(four, self.part(v, 4 * k, 4))
        total = const(F32, 0.0)
        for i in range(4):
            total = self.b.fadd(total, self.lane(four, i))
        return total

    # --- transposition ---
    def transpose(self, rows: Sequence[Value]) -> list[Value]:
        """8 or 16 vectors of as many 32-bit lanes -> as many vectors, lane i of vector j = lane j of vector i."""
        n = len(rows)
        lanes = range(0, n, 4)

        def merged(pair: Sequence[Value], picks: Sequence[Sequence[int]]) -> list[Value]:
            """For each of `picks`, lanes of 32 bits from every 128 bits of the first, and from n on of the second."""
            return [self.shuffle(pair[0], [at + lane for lane in lanes for at in pick], pair[1]) for pick in picks]

        columns: list[list[Value]] = [[] for _ in range(4)]  # column j of 128 bits, 4 rows at a time
        for i in range(0, n, 4):
            first, second = (merged(rows[i + k : i + k + 2], ([0, n, 1, n + 1], [2, n + 2, 3, n + 3])) for k in (0, 2))
            for k in (0, 1):
                pair = merged((first[k], second[k]), ([0, 1, n, n + 1], [2, 3, n + 2, n + 3]))
                columns[2 * k].append(pair[0])
                columns[2 * k + 1].append(pair[1])
        quarters = [self._transpose_quarters(parts) for parts in columns]
        return [quarters[j][lane] for lane in range(n // 4) for j in range(4)]

    def _transpose_quarters(self, rows: Sequence[Value]) -> list[Value]:
        """2 or 4 vectors of as many parts of 128 bits -> as many vectors, part i of vector j = part j of vector i."""
        n = len(rows)

        def picked(pair: Sequence[Value], parts: Sequence[int]) -> Value:
            return self.shuffle(pair[0], [4 * part + i for part in parts for i in range(4)], pair[1])

        if n == 2:
            return [picked(rows, (k, 2 + k)) for k in (0, 1)]
        halves = [[picked(rows[i : i + 2], (k, k + 1, 4 + k, 5 + k)) for i in (0, 2)] for k in (0, 2)]
        return [picked(half, (k, 2 + k, 4 + k, 6 + k)) for half in halves for k in (0, 1)]


class Piece:
    """A function that writes IR, to be called from kernels."""

    def __init__(self, body: Callable[..., Value], sig: str, isa: ISA | None, apart: bool) -> None:
        self.body, self.sig, self.isa, self.apart, self.__name__ = body, sig, isa, apart, body.__name__

    def __call__(self, *args: Any) -> Any:
        raise TypeError(f"{self.__name__} writes machine code; it can only be called in a kernel")


def emit(sig: str, isa: ISA | None = None, *, apart: bool = False) -> Callable[[Callable[..., Value]], Any]:
    """Make a function callable from kernels: @emit('i64,f32->void') on `def piece(e: Emitter, address, x)`.

    apart: as a separate function (see `Emitter.function`) instead of inline.
    """
    return lambda body: Piece(body, sig, isa, apart)


# --- pieces that every kernel uses ---
def _typed(e: Emitter, address: Value) -> Value:
    return e.b.inttoptr(address, I64.as_pointer())


@emit("i64,i64->i64")
def atomic_add(e: Emitter, address: Value, value: Value) -> Value:
    return e.b.atomic_rmw("add", _typed(e, address), value, "acq_rel")


@emit("i64->i64")
def atomic_load(e: Emitter, address: Value) -> Value:
    return e.b.load_atomic(_typed(e, address), "acquire", 8)


@emit("->void")
def pause(e: Emitter) -> None:
    if e.isa.x86:
        e.call("llvm.x86.sse2.pause", VOID)
    else:
        e.call("llvm.aarch64.hint", VOID, const(I32, 1))


@emit("->void")
def sched_yield(e: Emitter) -> None:
    e.call("sched_yield", I32)


@emit("i64,i64,i64,i64->void")
def call_kernel(e: Emitter, function: Value, args: Value, tid: Value, nth: Value) -> None:
    kind = ir.FunctionType(VOID, [I64, I64, I64])
    e.b.call(e.b.inttoptr(function, kind.as_pointer()), [args, tid, nth])


@emit("i64->i64")
def ldi(e: Emitter, address: Value) -> Value:
    return e.load(I64, address)


@emit("i64->i64")
def ldi32(e: Emitter, address: Value) -> Value:
    """Load an i32, sign-extended."""
    return e.b.sext(e.load(I32, address), I64)


@emit("i64,i64->void")
def sti32(e: Emitter, address: Value, value: Value) -> None:
    """Store the low half as an i32."""
    e.store(e.b.trunc(value, I32), address)


@emit("i64,i64->void")
def sti(e: Emitter, address: Value, value: Value) -> None:
    e.store(value, address)


@emit("i64->f32")
def ldf(e: Emitter, address: Value) -> Value:
    return e.load(F32, address)


@emit("i64,f32->void")
def stf(e: Emitter, address: Value, value: Value) -> None:
    e.store(value, address)
