"""SIMD types for numba kernels: f32x8 is eight f32 that are processed together, u8x32 are 32 bytes.

Every lane does what C does with one number, in the same order: no operation here crosses lanes (`lanes_across` has
those), contracts or reassociates, so a search over eight rows gives the bits of eight searches, on any machine. LLVM
splits vectors that are wider than the machine's registers.

    operators    + - * / & | ^ << >> between vectors of a type, or a vector and a number, which is repeated;
                 < > >= == make a mask, & joins masks
    functions    see below; all are for use inside `@fast` functions only
"""

import operator
import os
from collections.abc import Callable
from typing import Any

import llvmlite.binding as llvm
from llvmlite import ir
from numba import njit, types
from numba.core import cgutils
from numba.core.datamodel import PrimitiveModel
from numba.core.typing import signature
from numba.core.typing.templates import AbstractTemplate, infer_global
from numba.extending import intrinsic, lower_builtin, register_model

from . import compiling
from .kept_code import keep

compiling.watch()
N = 8  # of `load`, `gather` and `splat`: rows that a search works on at once
MASK = types.boolean
_IR = {
    types.float32: ir.FloatType(), types.float64: ir.DoubleType(), types.int32: ir.IntType(32),
    types.uint8: ir.IntType(8), types.int8: ir.IntType(8), types.uint16: ir.IntType(16), types.int16: ir.IntType(16),
    MASK: ir.IntType(1),
}  # fmt: skip


def cpu_features() -> set[str]:
    """LLVM's names of the features that numba compiles for."""
    given = os.environ.get("NUMBA_CPU_FEATURES")
    if given is None and not os.environ.get("NUMBA_CPU_NAME"):
        return {name for name, on in llvm.get_host_cpu_features().items() if on}
    return {name[1:] for name in (given or "").split(",") if name.startswith("+")}


class Vec(types.Type):
    """n lanes of `element`, a scalar type of numba; of booleans: a mask."""

    def __init__(self, element: types.Type, n: int) -> None:
        self.element, self.n = element, n
        super().__init__(f"{element}x{n}")

    @property
    def ir(self) -> Any:
        return ir.VectorType(_IR[self.element], self.n)

    @property
    def signed(self) -> bool:
        return self.element in (types.int8, types.int32)

    @property
    def is_float(self) -> bool:
        return self.element in (types.float32, types.float64)

    def of(self, element: types.Type) -> "Vec":
        """As many lanes of another type."""
        return Vec(element, self.n)


@register_model(Vec)
class _Model(PrimitiveModel):
    def __init__(self, manager: Any, kind: Vec) -> None:
        super().__init__(manager, kind, kind.ir)


def fast(function: Callable[..., Any]) -> Callable[..., Any]:
    """Compiles a function at its first call, without the interpreter's lock; its code is kept on disk if that can be
    written."""
    compiled: Any = njit(nogil=True, error_model="numpy")(function)
    keep(compiled, function)
    return compiled  # type: ignore[no-any-return]


def piece(function: Callable[..., Any]) -> Callable[..., Any]:
    """As `fast`, for a function that is inlined into its caller, however long it is: a call would pass seven numbers
    per array."""
    compiled: Callable[..., Any] = njit(nogil=True, error_model="numpy", forceinline=True)(function)
    return compiled


def _repeated(builder: Any, value: Any, n: int) -> Any:
    i32 = ir.IntType(32)
    one = builder.insert_element(ir.Constant(ir.VectorType(value.type, n), ir.Undefined), value, ir.Constant(i32, 0))
    return builder.shuffle_vector(one, one, ir.Constant(ir.VectorType(i32, n), [0] * n))


def _operator(of: Any, emit: Callable[[Any, Vec, Any, Any], Any], *, compares: bool = False) -> None:
    @infer_global(of)
    class _Typing(AbstractTemplate):
        def generic(self, args: Any, kws: Any) -> Any:
            vectors = [a for a in args if isinstance(a, Vec)]
            if len(args) != 2 or not vectors or any(v != vectors[0] for v in vectors):
                return None
            if not all(isinstance(a, Vec | types.Number) for a in args):
                return None
            return signature(vectors[0].of(MASK) if compares else vectors[0], *args)

    def lower(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        vec = next(a for a in sig.args if isinstance(a, Vec))
        both = [
            a if isinstance(t, Vec) else _repeated(builder, context.cast(builder, a, t, vec.element), vec.n)
            for a, t in zip(args, sig.args, strict=True)
        ]
        return emit(builder, vec, *both)

    for pair in ((Vec, Vec), (Vec, types.Number), (types.Number, Vec)):
        lower_builtin(of, *pair)(lower)


def comparison(sign: str) -> Callable[[Any, Vec, Any, Any], Any]:
    def emit(b: Any, vec: Vec, x: Any, y: Any) -> Any:
        if vec.is_float:
            return b.fcmp_ordered(sign, x, y)
        compare = b.icmp_signed if vec.signed else b.icmp_unsigned
        return compare(sign, x, y)

    return emit


_operator(operator.add, lambda b, v, x, y: b.fadd(x, y) if v.is_float else b.add(x, y))
_operator(operator.sub, lambda b, v, x, y: b.fsub(x, y) if v.is_float else b.sub(x, y))
_operator(operator.mul, lambda b, v, x, y: b.fmul(x, y) if v.is_float else b.mul(x, y))
_operator(operator.truediv, lambda b, v, x, y: b.fdiv(x, y))
_operator(operator.and_, lambda b, v, x, y: b.and_(x, y))
_operator(operator.or_, lambda b, v, x, y: b.or_(x, y))
_operator(operator.xor, lambda b, v, x, y: b.xor(x, y))
_operator(operator.lshift, lambda b, v, x, y: b.shl(x, y))
_operator(operator.rshift, lambda b, v, x, y: b.ashr(x, y) if v.signed else b.lshr(x, y))
_operator(operator.lt, comparison("<"), compares=True)
_operator(operator.gt, comparison(">"), compares=True)
_operator(operator.ge, comparison(">="), compares=True)
_operator(operator.eq, comparison("=="), compares=True)


def _element(context: Any, builder: Any, kind: Any, array: Any, index: Any) -> Any:
    """Pointer to array[index]; 1-D, C order, not checked."""
    data = context.make_array(kind)(context, builder, array).data
    return builder.gep(data, [index])


def _vector(context: Any, builder: Any, kind: Any, array: Any, index: Any, vec: Vec) -> Any:
    return builder.bitcast(_element(context, builder, kind, array, index), ir.PointerType(vec.ir))


def _bytes(kind: Any) -> int:
    return int(kind.dtype.bitwidth) // 8


def _intr(builder: Any, name: str, *args: Any) -> Any:
    kind = args[0].type
    suffix = f"v{kind.count}{kind.element.intrinsic_name}" if isinstance(kind, ir.VectorType) else kind.intrinsic_name
    function = ir.FunctionType(kind, [kind] * len(args))
    return builder.call(cgutils.get_or_insert_function(builder.module, function, f"llvm.{name}.{suffix}"), args)


def inserted(builder: Any, parts: list[Any]) -> Any:
    """A vector of these numbers."""
    v = ir.Constant(ir.VectorType(parts[0].type, len(parts)), ir.Undefined)
    for j, part in enumerate(parts):
        v = builder.insert_element(v, part, ir.Constant(ir.IntType(32), j))
    return v


def _loader(n: int) -> Any:
    @intrinsic
    def load(typing: Any, source: Any, place: Any) -> Any:
        vec = Vec(source.dtype, n)

        def emit(context: Any, builder: Any, sig: Any, args: Any) -> Any:
            array, index = args
            where = _vector(context, builder, sig.args[0], array, index, vec)
            return builder.load(where, align=_bytes(sig.args[0]))

        return vec(source, types.intp), emit

    return load


# load(array [n], index): elements index to index + 7, or 15, or 31
load, load16, load32 = _loader(N), _loader(16), _loader(32)


@intrinsic
def store(typing: Any, target: Any, place: Any, value: Any) -> Any:
    """The reverse of `load`, for vectors of any length."""
    if not isinstance(value, Vec) or value.element != target.dtype:
        return None

    def emit(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        array, index, v = args
        builder.store(v, _vector(context, builder, sig.args[0], array, index, value), align=_bytes(sig.args[0]))
        return context.get_dummy_value()

    return types.void(target, types.intp, value), emit


@intrinsic
def gather(typing: Any, array: Any, index: Any, stride: Any) -> Any:
    """array f32 [n]: elements index, index + stride, ... one for each of 8 lanes."""

    def emit(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        parts, at = [], args[1]
        for _ in range(N):
            parts.append(builder.load(_element(context, builder, sig.args[0], args[0], at)))
            at = builder.add(at, args[2])
        return inserted(builder, parts)

    return Vec(types.float32, N)(array, types.intp, types.intp), emit


@intrinsic
def splat(typing: Any, value: Any) -> Any:
    """value, f32, f64 or an integer (cut off to i32), in each of 8 lanes."""
    vec = Vec(types.int32 if isinstance(value, types.Integer) else value, N)

    def emit(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        return _repeated(builder, context.cast(builder, args[0], sig.args[0], vec.element), N)

    return vec(value), emit


@intrinsic
def select(typing: Any, mask: Any, x: Any, y: Any) -> Any:
    """x where the mask is set, else y. x or y may be a number."""
    vec = x if isinstance(x, Vec) else y

    def emit(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        both = [
            a if t == vec else _repeated(builder, context.cast(builder, a, t, vec.element), vec.n)
            for a, t in zip(args[1:], sig.args[1:], strict=True)
        ]
        return builder.select(args[0], *both)

    return vec(mask, x, y), emit


@intrinsic
def nearest(typing: Any, x: Any) -> Any:
    """Rounded to an integer, halves to even, as ggml's nearest_int."""

    def emit(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        return _intr(builder, "rint", args[0])

    return x(x), emit


@intrinsic
def magnitude(typing: Any, x: Any) -> Any:
    """|x|"""

    def emit(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        return _intr(builder, "fabs", args[0])

    return x(x), emit


@intrinsic
def root(typing: Any, x: Any) -> Any:
    """The square root."""

    def emit(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        return _intr(builder, "sqrt", args[0])

    return x(x), emit


def _cast(wanted: Callable[[Any], types.Type], emit: Callable[[Any, Any, Any, Any], Any]) -> Any:
    """A conversion of vectors, or of a number: emit(builder, value, type of LLVM, numba's type of an element)."""

    @intrinsic
    def convert(typing: Any, x: Any) -> Any:
        of = x.element if isinstance(x, Vec) else x
        new = wanted(of)
        result = x.of(new) if isinstance(x, Vec) else new

        def lower(context: Any, builder: Any, sig: Any, args: Any) -> Any:
            return emit(builder, args[0], result.ir if isinstance(result, Vec) else _IR[new], of)

        return result(x), lower

    return convert


def _to_float(b: Any, v: Any, to: Any, of: Any) -> Any:
    return b.sitofp(v, to) if of.signed else b.uitofp(v, to)


def _widened(b: Any, v: Any, to: Any, of: Any) -> Any:
    return b.sext(v, to) if of is not MASK and of.signed else b.zext(v, to)


# the bits of an f32, and back
bits = _cast(lambda of: types.int32, lambda b, v, to, of: b.bitcast(v, to))
floats = _cast(lambda of: types.float32, lambda b, v, to, of: b.bitcast(v, to))
# the nearest f32 of an integer; an f32 cut off to an integer that fits into i32, as by a cast in C
to_f32 = _cast(lambda of: types.float32, _to_float)
to_i32 = _cast(lambda of: types.int32, lambda b, v, to, of: b.fptosi(v, to))
to_f64 = _cast(lambda of: types.float64, lambda b, v, to, of: b.fpext(v, to))
# bytes, 16-bit numbers and masks (0, 1) to i32; the lowest 8 or 16 bits of i32; u8 that are meant as i8
widened = _cast(lambda of: types.int32, _widened)
to_u8 = _cast(lambda of: types.uint8, lambda b, v, to, of: b.trunc(v, to))
to_u16 = _cast(lambda of: types.uint16, lambda b, v, to, of: b.trunc(v, to))
as_i8 = _cast(lambda of: types.int8, lambda b, v, to, of: v)


@intrinsic
def as_bytes(typing: Any, x: Any) -> Any:
    """The bytes of 16-bit numbers, little endian."""
    vec = Vec(types.uint8, 2 * x.n)

    def emit(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        return builder.bitcast(args[0], vec.ir)

    return vec(x), emit
