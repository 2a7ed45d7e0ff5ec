"""SIMD written once: a small emitter over llvmlite IR, and `emit`, which makes a function that writes IR callable from
numba-compiled kernels.

Vectors are LLVM vectors of any width; LLVM splits those that are wider than a register. No fast-math flag is ever set:
what may be contracted (fma) or reassociated is written out, so that the bits of a result do not depend on the target.
"""

from collections.abc import Callable, Sequence
from typing import Any

from llvmlite import ir

from .isa import ISA, host

I1, I8, I16, I32, I64 = (ir.IntType(n) for n in (1, 8, 16, 32, 64))
F16, F32, F64 = ir.HalfType(), ir.FloatType(), ir.DoubleType()
PTR = ir.PointerType()
VOID = ir.VoidType()
Vec = ir.VectorType
Value = Any  # llvmlite's values carry no useful static types

LOG2E = 1.4426950408889634
LN2 = 0.6931471805599453


def const(ty: Any, value: Any) -> ir.Constant:
    """A constant; a scalar is repeated in every lane of a vector type."""
    if isinstance(ty, Vec):
        return ir.Constant(ty, list(value) if isinstance(value, list | tuple) else [value] * ty.count)
    return ir.Constant(ty, value)


class _BFloat(ir.types.Type):
    """LLVM's bfloat, which llvmlite has no name for."""

    intrinsic_name = "bf16"

    def _to_string(self) -> str:
        return "bfloat"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _BFloat)

    def __hash__(self) -> int:
        return hash(_BFloat)


class Emitter:
    """Writes IR at the position of an IRBuilder. Addresses are i64 or pointers; offsets are bytes."""

    def __init__(self, builder: Any, isa: ISA | None = None) -> None:
        self.b, self.module, self.isa = builder, builder.module, isa or host()

    # --- memory ---
    def ptr(self, address: Value) -> Value:
        return self.b.inttoptr(address, PTR) if isinstance(address.type, ir.IntType) else address

    def at(self, pointer: Value, offset: Value | int) -> Value:
        if isinstance(offset, int):
            offset = const(I64, offset)
        return self.b.gep(self.ptr(pointer), [offset], source_etype=I8)

    def load(self, ty: Any, pointer: Value, offset: Value | int = 0, align: int = 1) -> Value:
        pointer = self.ptr(pointer)
        if not (isinstance(offset, int) and offset == 0):
            pointer = self.at(pointer, offset)
        return self.b.load(pointer, typ=ty, align=align)

    def store(self, value: Value, pointer: Value, offset: Value | int = 0, align: int = 1) -> None:
        pointer = self.ptr(pointer)
        if not (isinstance(offset, int) and offset == 0):
            pointer = self.at(pointer, offset)
        self.b.store(value, pointer, align=align)

    def stack(self, ty: Any, count: int = 1) -> Value:
        """Scratch on the stack, allocated once at the entry of the function even when used inside a loop."""
        with self.b.goto_entry_block():
            slot = self.b.alloca(ir.ArrayType(ty, count))
        slot.align = 64
        return self.b.inttoptr(self.b.ptrtoint(slot, I64), PTR)

    def prefetch(self, pointer: Value, offset: int, level: int = 3) -> None:
        """Ask for the cache line at pointer + offset, to be read soon (any address is allowed). level 3: L1, 2: L2."""
        self.call("llvm.prefetch.p0", VOID, self.at(pointer, offset), const(I32, 0), const(I32, level), const(I32, 1))

    # --- calls and vectors ---
    def call(self, name: str, ret: Any, *args: Value) -> Value:
        fn = self.module.globals.get(name)
        if fn is None:
            fn = ir.Function(self.module, ir.FunctionType(ret, [a.type for a in args]), name)
        return self.b.call(fn, args)

    @staticmethod
    def _suffix(ty: Any) -> str:
        if isinstance(ty, Vec):
            return f"v{ty.count}{Emitter._suffix(ty.element)}"
        return f"i{ty.width}" if isinstance(ty, ir.IntType) else ty.intrinsic_name

    def function(self, name: str, body: Callable[..., Value], *args: Value, result: Any = VOID) -> Value:
        """Call body(e, *args) as a function of its own, written once per module.

        For what is used in several places, or loops for long: the kernels become smaller and compile faster.
        """
        fn = self.module.globals.get(name)
        if fn is None:
            fn = ir.Function(self.module, ir.FunctionType(result, [a.type for a in args]), name)
            fn.linkage = "internal"
            fn.attributes.add("noinline")
            builder = ir.IRBuilder(fn.append_basic_block("entry"))
            value = body(Emitter(builder, self.isa), *fn.args)
            builder.ret_void() if result is VOID else builder.ret(value)
        return self.b.call(fn, args)

    def intr(self, name: str, *args: Value) -> Value:
        """Overloaded LLVM intrinsic whose operands and result share one type."""
        return self.call(f"llvm.{name}.{self._suffix(args[0].type)}", args[0].type, *args)

    def fma(self, a: Value, b: Value, acc: Value) -> Value:
        """a * b + acc with one rounding."""
        return self.intr("fma", a, b, acc)

    def shuffle(self, a: Value, mask: Sequence[int], other: Value | None = None) -> Value:
        other = ir.Constant(a.type, ir.Undefined) if other is None else other
        return self.b.shuffle_vector(a, other, const(Vec(I32, len(mask)), list(mask)))

    def splat(self, x: Value, n: int) -> Value:
        v = self.b.insert_element(ir.Constant(Vec(x.type, n), ir.Undefined), x, const(I32, 0))
        return self.shuffle(v, [0] * n)

    def cat(self, a: Value, b: Value) -> Value:
        return self.shuffle(a, list(range(2 * a.type.count)), b)

    def part(self, a: Value, first: int, n: int) -> Value:
        return self.shuffle(a, list(range(first, first + n)))

    def lane(self, a: Value, i: int) -> Value:
        return self.b.extract_element(a, const(I32, i))

    def to_f32(self, v: Value) -> Value:
        """Signed integers -> f32, lane by lane."""
        return self.b.sitofp(v, Vec(F32, v.type.count) if isinstance(v.type, Vec) else F32)

    def half(self, bits: Value) -> Value:
        """i16 (or a vector of them) holding binary16 -> f32."""
        if self.isa.x86 and self.isa.dot == "plain":
            return self._half_in_integers(bits)
        if isinstance(bits.type, Vec):
            n = bits.type.count
            return self.b.fpext(self.b.bitcast(bits, Vec(F16, n)), Vec(F32, n))
        return self.b.fpext(self.b.bitcast(bits, F16), F32)

    def _half_in_integers(self, bits: Value) -> Value:
        """`half` without F16C, for which LLVM would call a function that not every system has."""
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
        """Vector of i16 holding bfloat16 -> f32."""
        n = bits.type.count
        wide = self.b.shl(self.b.zext(bits, Vec(I32, n)), const(Vec(I32, n), 16))
        return self.b.bitcast(wide, Vec(F32, n))

    @staticmethod
    def f32_like(x: Value) -> Any:
        """The f32 type with as many lanes as x."""
        return Vec(F32, x.type.count) if isinstance(x.type, Vec) else F32

    # --- BF16 ---
    def dot_pairs(self, acc: Value, a: Value, c: Value) -> Value:
        """<16 x f32> += two products of BF16, of the high halves of a lane's dwords first, then of the low ones.

        Without the instruction as two fma, which is what its description says. It also takes subnormal numbers for
        zero, so that processors may differ in what is below 2^-126.
        """
        if self.isa.bf16 and self.isa.x86:
            pairs = Vec(_BFloat(), 32)
            a, c = self.b.bitcast(a, pairs), self.b.bitcast(c, pairs)
            return self.call("llvm.x86.avx512bf16.dpbf16ps.512", acc.type, acc, a, c)
        ty = Vec(I32, acc.type.count)
        a, c = self.b.bitcast(a, ty), self.b.bitcast(c, ty)
        high = [self.b.bitcast(self.b.and_(v, const(ty, -65536)), acc.type) for v in (a, c)]
        low = [self.b.bitcast(self.b.shl(v, const(ty, 16)), acc.type) for v in (a, c)]
        return self.fma(low[0], low[1], self.fma(high[0], high[1], acc))

    def to_bf16(self, x: Value) -> Value:
        """f32 lanes -> i16 with BF16, rounded to nearest even; NaN stays NaN."""
        ty = Vec(I32, x.type.count)
        bits = self.b.bitcast(x, ty)
        odd = self.b.and_(self.b.lshr(bits, const(ty, 16)), const(ty, 1))
        rounded = self.b.lshr(self.b.add(bits, self.b.add(odd, const(ty, 0x7FFF))), const(ty, 16))
        quiet = self.b.or_(self.b.lshr(bits, const(ty, 16)), const(ty, 64))
        return self.b.trunc(self.b.select(self.b.fcmp_unordered("uno", x, x), quiet, rounded), Vec(I16, ty.count))

    # --- NEON ---
    def sdot(self, acc: Value, a: Value, c: Value) -> Value:
        """<4 x i32> += sums of four products of <16 x i8>, signed."""
        if self.isa.dot == "neon":
            return self.call("llvm.aarch64.neon.sdot.v4i32.v16i8", acc.type, acc, a, c)
        wide = Vec(I32, 16)
        products = self.b.mul(self.b.sext(a, wide), self.b.sext(c, wide))
        for k in range(4):
            acc = self.b.add(acc, self.shuffle(products, list(range(k, 16, 4))))
        return acc

    def add_neighbours(self, a: Value, c: Value) -> Value:
        """Two vectors of integers -> sums of neighbours of a, then those of c."""
        n = a.type.count
        if self.isa.dot == "neon" and n * a.type.element.width == 128:
            return self.call(f"llvm.aarch64.neon.addp.{self._suffix(a.type)}", a.type, a, c)
        even, odd = (self.shuffle(a, list(range(h, 2 * n, 2)), c) for h in (0, 1))
        return self.b.add(even, odd)

    # --- tables ---
    def table(self, name: str, content: bytes) -> Value:
        """Address of constant bytes, one copy per module; `name` says what they are."""
        name = f"hybrid.{name}"
        made = self.module.globals.get(name)
        if made is None:
            ty = ir.ArrayType(I8, len(content))
            made = ir.GlobalVariable(self.module, ty, name)
            made.linkage, made.global_constant, made.unnamed_addr, made.align = "internal", True, True, 64
            made.initializer = ir.Constant(ty, bytearray(content))
        return self.b.inttoptr(self.b.ptrtoint(made, I64), PTR)

    def lookup16(self, values: Sequence[int], index: Value) -> Value:
        """values[i] for every i (0..15) of a vector of 16 or 32 i8."""
        ty = index.type
        assert len(values) == 16 and ty.count in (16, 32)
        if self.isa.x86 and self.isa.dot != "plain" and ty.count == 32:
            return self.call("llvm.x86.avx2.pshuf.b", ty, const(ty, list(values) * 2), index)
        if self.isa.arch == "arm64":
            half = Vec(I8, 16)
            table = const(half, list(values))
            parts = [self.part(index, k, 16) for k in range(0, ty.count, 16)]
            made = [self.call("llvm.aarch64.neon.tbl1.v16i8", half, table, p) for p in parts]
            return made[0] if ty.count == 16 else self.cat(made[0], made[1])
        # a tree of selections by the bits of the index: no instruction of a target needed
        candidates = [const(ty, v) for v in values]
        for bit in range(4):
            chosen = self.b.icmp_unsigned("!=", self.b.and_(index, const(ty, 1 << bit)), const(ty, 0))
            candidates = [self.b.select(chosen, candidates[i + 1], candidates[i]) for i in range(0, len(candidates), 2)]
        return candidates[0]

    # --- reductions in a documented order ---
    def halving_sum(self, v: Value) -> Value:
        """Sum of the lanes: upper half onto lower half until one is left."""
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

    def reduce8(self, rows: Sequence[Value], combine: Callable[[Value, Value], Value]) -> tuple[Value, Value]:
        """8 vectors of 8 32-bit lanes -> two: of each vector its first four lanes combined, and its last four."""

        def merge(a: Value, c: Value, low: list[int], high: list[int]) -> Value:
            return combine(self.shuffle(a, low, c), self.shuffle(a, high, c))

        # interleaving, not even and odd lanes: from those LLVM makes horizontal additions, which are slow everywhere
        singles = [0, 8, 1, 9, 4, 12, 5, 13], [2, 10, 3, 11, 6, 14, 7, 15]
        pairs = [0, 1, 8, 9, 4, 5, 12, 13], [2, 3, 10, 11, 6, 7, 14, 15]
        one = [merge(rows[i], rows[i + 1], *singles) for i in range(0, 8, 2)]
        two = [merge(one[0], one[1], *pairs), merge(one[2], one[3], *pairs)]
        lower = self.shuffle(two[0], [0, 1, 2, 3, 8, 9, 10, 11], two[1])
        upper = self.shuffle(two[0], [4, 5, 6, 7, 12, 13, 14, 15], two[1])
        return lower, upper

    def chain_total(self, chains: Sequence[Value]) -> Value:
        """Total of the 16 chains of a row (see matmul.py), the same additions whoever calls it.

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

    # --- control ---
    def loop(
        self,
        stop: Value | int,
        body: Callable[[Value, list[Value]], Sequence[Value] | None],
        carried: Sequence[Value] = (),
        start: Value | int = 0,
        step: int = 1,
    ) -> list[Value]:
        """for i in range(start, stop, step): carried = body(i, carried). Returns the last carried values."""
        b = self.b
        start = const(I64, start) if isinstance(start, int) else start
        stop = const(I64, stop) if isinstance(stop, int) else stop
        before = b.block
        head, inner, after = (b.append_basic_block(n) for n in ("loop", "body", "done"))
        b.branch(head)
        b.position_at_end(head)
        i = b.phi(I64)
        i.add_incoming(start, before)
        phis = []
        for value in carried:
            phi = b.phi(value.type)
            phi.add_incoming(value, before)
            phis.append(phi)
        b.cbranch(b.icmp_signed("<", i, stop), inner, after)
        b.position_at_end(inner)
        new = body(i, list(phis)) or []
        following = b.add(i, const(I64, step), flags=("nsw",))
        last = b.block
        i.add_incoming(following, last)
        for phi, value in zip(phis, new, strict=True):
            phi.add_incoming(value, last)
        b.branch(head)
        b.position_at_end(after)
        return phis

    # --- elementary functions ---
    def at_least(self, x: Value, low: float) -> Value:
        """max(x, low); NaN stays NaN (one instruction on x86, which llvm.maxnum is not)."""
        bound = const(x.type, low)
        return self.b.select(self.b.fcmp_ordered("<", x, bound), bound, x)

    def at_most(self, x: Value, high: float) -> Value:
        """min(x, high); NaN stays NaN."""
        bound = const(x.type, high)
        return self.b.select(self.b.fcmp_ordered(">", x, bound), bound, x)

    def exp2(self, t: Value) -> Value:
        """2^t for f32 lanes, t <= 127; at and below -125.5 the result is near 2^-126. Within 1.1 ulp; NaN stays NaN.

        Cody-Waite reduction to |f| <= 1/2 and a polynomial of degree 6, the same operations on every target.
        """
        b, ty = self.b, t.type
        n = ty.count
        t = self.at_least(t, -126.0)
        r = self.intr("rint", t)
        f = b.fsub(t, r)
        p = const(ty, 1.535336188e-4)
        for k in (1.339887440e-3, 9.618437357e-3, 5.550332471e-2, 2.402264791e-1, 6.931472028e-1, 1.0):
            p = self.fma(p, f, const(ty, k))
        # p is in [0.7, 1.42] and the result normal: adding r to the exponent multiplies by 2^r exactly
        exponent = b.shl(b.fptosi(r, Vec(I32, n)), const(Vec(I32, n), 23))
        return b.bitcast(b.add(b.bitcast(p, Vec(I32, n)), exponent), ty)

    def exp_nonpositive(self, x: Value) -> Value:
        """exp(x) for x <= 0."""
        return self.exp2(self.b.fmul(x, const(x.type, LOG2E)))

    def sigmoid_times(self, x: Value) -> Value:
        """SiLU: x * sigmoid(x) = x / (1 + exp(-x)). NaN stays NaN."""
        b, ty = self.b, x.type
        t = self.at_most(b.fmul(x, const(ty, -LOG2E)), 126.0)
        return b.fdiv(x, b.fadd(const(ty, 1.0), self.exp2(t)))

    def softplus(self, x: Value) -> Value:
        """log(1 + exp(x)) = max(x, 0) + log1p(exp(-|x|)), log1p(u) = 2 artanh(u / (2 + u)) by its series."""
        b, ty = self.b, x.type
        u = self.exp_nonpositive(b.fneg(self.intr("fabs", x)))
        s = b.fdiv(u, b.fadd(u, const(ty, 2.0)))
        s2 = b.fmul(s, s)
        p = const(ty, 2.0 / 17)
        for k in (15, 13, 11, 9, 7, 5, 3, 1):
            p = self.fma(p, s2, const(ty, 2.0 / k))
        return self.fma(p, s, self.intr("maxnum", x, const(ty, 0.0)))

    def tanh(self, x: Value) -> Value:
        """Hyperbolic tangent of f32 lanes, within 1.8 ulp; NaN stays NaN.

        |x| < 0.55: x + x^3 p(x^2), p fitted to (tanh(x) / x - 1) / x^2 with least largest error; else
        1 - 2 / (exp(2 |x|) + 1).
        """
        b, ty = self.b, x.type
        size = self.intr("fabs", x)
        s = b.fmul(x, x)
        p = const(ty, -6.282619201e-3)
        for k in (2.107788436e-2, -5.385389552e-2, 1.333260238e-1, -3.333331943e-1):
            p = self.fma(p, s, const(ty, k))
        small = self.fma(b.fmul(p, s), x, x)
        power = self.exp2(b.fmul(self.at_most(size, 10.0), const(ty, 2 * LOG2E)))
        large = b.fsub(const(ty, 1.0), b.fdiv(const(ty, 2.0), b.fadd(power, const(ty, 1.0))))
        # with the sign of x, that of -0 too
        return self.intr("copysign", b.select(b.fcmp_ordered("<", size, const(ty, 0.55)), small, large), x)

    # --- 8x8 transposition ---
    def transpose8(self, rows: Sequence[Value]) -> list[Value]:
        """8 vectors of 8 32-bit lanes -> 8 vectors, lane i of vector j = lane j of vector i."""

        def zip_(a: Value, b: Value, mask: list[int]) -> Value:
            return self.shuffle(a, mask, b)

        lo, hi = [0, 8, 1, 9, 4, 12, 5, 13], [2, 10, 3, 11, 6, 14, 7, 15]
        t = [zip_(rows[i], rows[i + 1], m) for i in range(0, 8, 2) for m in (lo, hi)]
        lo2, hi2 = [0, 1, 8, 9, 4, 5, 12, 13], [2, 3, 10, 11, 6, 7, 14, 15]
        u = []
        for g in (0, 4):
            for k in (0, 1):
                u += [zip_(t[g + k], t[g + k + 2], lo2), zip_(t[g + k], t[g + k + 2], hi2)]
        lo3, hi3 = [0, 1, 2, 3, 8, 9, 10, 11], [4, 5, 6, 7, 12, 13, 14, 15]
        return [zip_(u[k], u[k + 4], lo3) for k in range(4)] + [zip_(u[k], u[k + 4], hi3) for k in range(4)]


class Piece:
    """A function that writes IR, callable from kernels."""

    def __init__(self, body: Callable[..., Value], sig: str, isa: ISA | None, apart: bool) -> None:
        self.body, self.sig, self.isa, self.apart, self.__name__ = body, sig, isa, apart, body.__name__

    def __call__(self, *args: Any) -> Any:
        raise TypeError(f"{self.__name__} writes machine code; it can only be called in a kernel")


def emit(sig: str, isa: ISA | None = None, *, apart: bool = False) -> Callable[[Callable[..., Value]], Any]:
    """@emit('i64,f32->void') on `def piece(e: Emitter, address, x)`: makes it callable from kernels.

    apart: as a function of its own (see `Emitter.function`) instead of inline.
    """
    return lambda body: Piece(body, sig, isa, apart)


# --- pieces that every kernel uses ---
def _typed(e: Emitter, address: Value) -> Value:
    return e.b.inttoptr(address, I64.as_pointer())


@emit("i64,i64->i64")
def atomic_add(e, address, value):
    return e.b.atomic_rmw("add", _typed(e, address), value, "acq_rel")


@emit("i64->i64")
def atomic_load(e, address):
    return e.b.load_atomic(_typed(e, address), "acquire", 8)


@emit("i64,i64->void")
def atomic_store(e, address, value):
    e.b.store_atomic(value, _typed(e, address), "release", 8)


@emit("->void")
def pause(e):
    if e.isa.x86:
        e.call("llvm.x86.sse2.pause", VOID)
    else:
        e.call("llvm.aarch64.hint", VOID, const(I32, 1))


@emit("->void")
def sched_yield(e):
    e.call("sched_yield", I32)


@emit("i64,i64,i64,i64->void")
def call_kernel(e, function, args, tid, nth):
    kind = ir.FunctionType(VOID, [I64, I64, I64])
    e.b.call(e.b.inttoptr(function, kind.as_pointer()), [args, tid, nth])


@emit("i64->i64")
def ldi(e, address):
    return e.load(I64, address)


@emit("i64,i64->i64")
def arg(e, args, i):
    """Field `i` of an op record."""
    return e.load(I64, args, e.b.shl(i, const(I64, 3)))


@emit("i64,i64->void")
def sti(e, address, value):
    e.store(value, address)


@emit("i64->f32")
def ldf(e, address):
    return e.load(F32, address)


@emit("i64,f32->void")
def stf(e, address, value):
    e.store(value, address)
