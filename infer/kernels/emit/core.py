"""The emitter's base class: LLVM types, memory, calls, vectors and loops."""

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


def const(ty: Any, value: Any) -> ir.Constant:
    """A constant; a scalar is repeated in every lane of a vector type."""
    if isinstance(ty, Vec):
        return ir.Constant(ty, list(value) if isinstance(value, list | tuple) else [value] * ty.count)
    return ir.Constant(ty, value)


class EmitterCore:
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

    def prefetch(self, pointer: Value, offset: int, level: int = 3, *, write: bool = False) -> None:
        """Prefetch the cache line at pointer + offset for reading, or writing (any address is allowed).

        level 3: into L1, 2: into L2.
        """
        place = self.at(pointer, offset)
        self.call("llvm.prefetch.p0", VOID, place, const(I32, int(write)), const(I32, level), const(I32, 1))

    # --- calls and vectors ---
    def call(self, name: str, ret: Any, *args: Value) -> Value:
        fn = self.module.globals.get(name)
        if fn is None:
            fn = ir.Function(self.module, ir.FunctionType(ret, [a.type for a in args]), name)
        return self.b.call(fn, args)

    @staticmethod
    def _suffix(ty: Any) -> str:
        if isinstance(ty, Vec):
            return f"v{ty.count}{EmitterCore._suffix(ty.element)}"
        return f"i{ty.width}" if isinstance(ty, ir.IntType) else ty.intrinsic_name

    def function(self, name: str, body: Callable[..., Value], *args: Value, result: Any = VOID) -> Value:
        """Call body(e, *args) as a separate LLVM function, emitted once per module under `name`.

        For code that is used in several places, or loops long: kernels become smaller and compile faster.
        """
        fn = self.module.globals.get(name)
        if fn is None:
            fn = ir.Function(self.module, ir.FunctionType(result, [a.type for a in args]), name)
            fn.linkage = "internal"
            fn.attributes.add("noinline")
            builder = ir.IRBuilder(fn.append_basic_block("entry"))
            value = body(type(self)(builder, self.isa), *fn.args)
            builder.ret_void() if result is VOID else builder.ret(value)
        return self.b.call(fn, args)

    def intr(self, name: str, *args: Value) -> Value:
        """Call an overloaded LLVM intrinsic whose operands and result share one type."""
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

    @staticmethod
    def f32_like(x: Value) -> Any:
        """The f32 type with as many lanes as x."""
        return Vec(F32, x.type.count) if isinstance(x.type, Vec) else F32

    # --- control ---
    def barrier(self) -> None:
        """No instruction; LLVM moves no access to memory across it."""
        self.b.asm(ir.FunctionType(VOID, []), "", "~{memory}", [], True)

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
