"""A SIMD type for numba kernels: eight f32 in the lanes of a register, so that eight rows are worked on at once.

Every lane does what C does with one float, in the same order: no operation here crosses lanes, contracts or
reassociates, so that a search over eight rows gives the bits of eight searches, whatever the machine. LLVM splits the
vectors where registers are narrower.

    operators   + - * / between lanes; < > == make a mask, & joins masks
    functions   see below; all are for use inside `@fast` functions only
"""

import operator
from collections.abc import Callable
from typing import Any, ClassVar

from llvmlite import ir
from numba import njit, types
from numba.core import cgutils
from numba.core.datamodel import PrimitiveModel
from numba.core.typing import signature
from numba.core.typing.templates import ConcreteTemplate, infer_global
from numba.extending import intrinsic, lower_builtin, register_model

N = 8
_FLOATS, _BITS = ir.VectorType(ir.FloatType(), N), ir.VectorType(ir.IntType(1), N)


class _Lanes(types.Type):
    pass


LANES, MASK = _Lanes("f32x8"), _Lanes("boolx8")


@register_model(_Lanes)
class _Model(PrimitiveModel):
    def __init__(self, manager: Any, kind: Any) -> None:
        super().__init__(manager, kind, _FLOATS if kind is LANES else _BITS)


def fast(function: Callable[..., Any]) -> Callable[..., Any]:
    """Compiled at the first call, without the interpreter's lock; kept on disk where numba finds a place for it."""
    options: dict[str, Any] = {"nogil": True, "error_model": "numpy"}
    try:
        return njit(cache=True, **options)(function)
    except RuntimeError:  # no folder can be written
        return njit(**options)(function)


def _operator(of: Any, operand: types.Type, result: types.Type, emit: Callable[[Any, Any, Any], Any]) -> None:
    @infer_global(of)
    class _Typing(ConcreteTemplate):
        cases: ClassVar = [signature(result, operand, operand)]

    @lower_builtin(of, operand, operand)
    def _lower(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        return emit(builder, *args)


_operator(operator.add, LANES, LANES, lambda b, x, y: b.fadd(x, y))
_operator(operator.sub, LANES, LANES, lambda b, x, y: b.fsub(x, y))
_operator(operator.mul, LANES, LANES, lambda b, x, y: b.fmul(x, y))
_operator(operator.truediv, LANES, LANES, lambda b, x, y: b.fdiv(x, y))
_operator(operator.lt, LANES, MASK, lambda b, x, y: b.fcmp_ordered("<", x, y))
_operator(operator.gt, LANES, MASK, lambda b, x, y: b.fcmp_ordered(">", x, y))
_operator(operator.ge, LANES, MASK, lambda b, x, y: b.fcmp_ordered(">=", x, y))
_operator(operator.eq, LANES, MASK, lambda b, x, y: b.fcmp_ordered("==", x, y))
_operator(operator.and_, MASK, MASK, lambda b, x, y: b.and_(x, y))


def _element(context: Any, builder: Any, kind: Any, array: Any, index: Any) -> Any:
    """Pointer to array[index]; 1-D, C order, not checked."""
    data = context.make_array(kind)(context, builder, array).data
    return builder.gep(data, [index])


def _vector(context: Any, builder: Any, kind: Any, array: Any, index: Any) -> Any:
    return builder.bitcast(_element(context, builder, kind, array, index), ir.PointerType(_FLOATS))


def _call(builder: Any, name: str, *args: Any) -> Any:
    function = ir.FunctionType(_FLOATS, [_FLOATS] * len(args))
    return builder.call(cgutils.get_or_insert_function(builder.module, function, f"llvm.{name}.v{N}f32"), args)


def _insert(builder: Any, parts: list[Any]) -> Any:
    v = ir.Constant(_FLOATS, ir.Undefined)
    for j, part in enumerate(parts):
        v = builder.insert_element(v, part, ir.Constant(ir.IntType(32), j))
    return v


@intrinsic
def load(typing: Any, array: Any, index: Any) -> Any:
    """array f32 [n]: elements index to index + 7."""

    def emit(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        return builder.load(_vector(context, builder, sig.args[0], *args), align=4)

    return LANES(array, types.intp), emit


@intrinsic
def store(typing: Any, array: Any, index: Any, value: Any) -> Any:
    """The reverse of `load`."""

    def emit(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        builder.store(args[2], _vector(context, builder, sig.args[0], *args[:2]), align=4)
        return context.get_dummy_value()

    return types.void(array, types.intp, LANES), emit


@intrinsic
def gather(typing: Any, array: Any, index: Any, stride: Any) -> Any:
    """array f32 [n]: elements index, index + stride, ... one for each lane."""

    def emit(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        parts, at = [], args[1]
        for _ in range(N):
            parts.append(builder.load(_element(context, builder, sig.args[0], args[0], at)))
            at = builder.add(at, args[2])
        return _insert(builder, parts)

    return LANES(array, types.intp, types.intp), emit


@intrinsic
def splat(typing: Any, value: Any) -> Any:
    """value f32 in every lane."""

    def emit(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        return _insert(builder, [args[0]] * N)

    return LANES(types.float32), emit


@intrinsic
def select(typing: Any, mask: Any, x: Any, y: Any) -> Any:
    """x where the mask is set, y elsewhere."""

    def emit(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        return builder.select(*args)

    return LANES(MASK, LANES, LANES), emit


@intrinsic
def nearest(typing: Any, x: Any) -> Any:
    """Rounded to an integer, halves to even, as ggml's nearest_int."""

    def emit(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        return _call(builder, "rint", args[0])

    return LANES(LANES), emit


@intrinsic
def magnitude(typing: Any, x: Any) -> Any:
    """|x|"""

    def emit(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        return _call(builder, "fabs", args[0])

    return LANES(LANES), emit


@intrinsic
def any_set(typing: Any, mask: Any) -> Any:
    """Whether a lane of the mask is set."""

    def emit(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        bits = builder.bitcast(args[0], ir.IntType(N))
        return builder.icmp_unsigned("!=", bits, ir.Constant(ir.IntType(N), 0))

    return types.boolean(MASK), emit


@intrinsic
def lane(typing: Any, x: Any, j: Any) -> Any:
    """The f32 of lane j."""

    def emit(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        return builder.extract_element(args[0], builder.trunc(args[1], ir.IntType(32)))

    return types.float32(LANES, types.intp), emit
