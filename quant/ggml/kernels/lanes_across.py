"""Operations across the lanes of `lanes`: single lanes, masks as bits, permutations, halves, maximum, minimum, sum."""

from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from .lanes import MASK, N, Vec, comparison, cpu_features, inserted

_PERMUTES = "avx2" in cpu_features()


@intrinsic
def permuted(typing: Any, x: Any, numbers: Any) -> Any:
    """x f32x8, numbers i32x8 of 0 to 7 -> for each lane, the lane of x with that number."""

    def emit(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        if _PERMUTES:
            kind = ir.FunctionType(x.ir, [x.ir, numbers.ir])
            return builder.call(cgutils.get_or_insert_function(builder.module, kind, "llvm.x86.avx2.permps"), args)
        lanes = [ir.Constant(ir.IntType(32), j) for j in range(N)]
        return inserted(builder, [builder.extract_element(args[0], builder.extract_element(args[1], j)) for j in lanes])

    return x(x, numbers), emit


@intrinsic
def any_set(typing: Any, mask: Any) -> Any:
    """Whether a lane of the mask is set."""

    def emit(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        bits = builder.bitcast(args[0], ir.IntType(mask.n))
        return builder.icmp_unsigned("!=", bits, ir.Constant(ir.IntType(mask.n), 0))

    return types.boolean(mask), emit


@intrinsic
def first_set(typing: Any, mask: Any) -> Any:
    """The first lane that is set; 0 when no lane is."""

    def emit(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        bits = builder.zext(builder.bitcast(args[0], ir.IntType(mask.n)), ir.IntType(64))
        bits = builder.or_(bits, ir.Constant(ir.IntType(64), 1 << mask.n))
        lowest = builder.cttz(bits, ir.Constant(ir.IntType(1), 1))
        return builder.urem(lowest, ir.Constant(ir.IntType(64), mask.n))

    return types.intp(mask), emit


@intrinsic
def set_bits(typing: Any, mask: Any) -> Any:
    """A mask of 32 lanes as an i32, lane 0 in its lowest bit."""

    def emit(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        return builder.bitcast(args[0], ir.IntType(mask.n))

    return types.int32(mask), emit


@intrinsic
def as_mask(typing: Any, word: Any) -> Any:
    """The reverse of `set_bits`."""
    mask = Vec(MASK, 32)

    def emit(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        return builder.bitcast(args[0], mask.ir)

    return mask(types.int32), emit


@intrinsic
def lane(typing: Any, x: Any, j: Any) -> Any:
    """The number in lane j."""

    def emit(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        return builder.extract_element(args[0], builder.trunc(args[1], ir.IntType(32)))

    return x.element(x, types.intp), emit


def _shuffled(builder: Any, v: Any, first: int, n: int, other: Any = None) -> Any:
    lanes = ir.Constant(ir.VectorType(ir.IntType(32), n), list(range(first, first + n)))
    return builder.shuffle_vector(v, v if other is None else other, lanes)


def _half(second: bool) -> Any:
    @intrinsic
    def half(typing: Any, x: Any) -> Any:
        def emit(context: Any, builder: Any, sig: Any, args: Any) -> Any:
            return _shuffled(builder, args[0], x.n // 2 * second, x.n // 2)

        return Vec(x.element, x.n // 2)(x), emit

    return half


# the first half of the lanes, and the second
lower, upper = _half(False), _half(True)


@intrinsic
def joined(typing: Any, x: Any, y: Any) -> Any:
    """The lanes of x, then the lanes of y."""

    def emit(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        return _shuffled(builder, args[0], 0, 2 * x.n, args[1])

    return (Vec(x.element, 2 * x.n)(x, y), emit) if x == y else None


def _reduction(pick: Callable[[Any, Vec, Any, Any], Any]) -> Any:
    @intrinsic
    def reduce(typing: Any, x: Any) -> Any:
        def emit(context: Any, builder: Any, sig: Any, args: Any) -> Any:
            v, n = args[0], x.n
            while n > 1:
                n //= 2
                v = pick(builder, x, _shuffled(builder, v, 0, n), _shuffled(builder, v, n, n))
            return builder.extract_element(v, ir.Constant(ir.IntType(32), 0))

        return x.element(x), emit

    return reduce


def _chosen(sign: str) -> Callable[[Any, Vec, Any, Any], Any]:
    return lambda b, vec, x, y: b.select(comparison(sign)(b, vec, x, y), x, y)


# across lanes: the greatest, the least, the sum (halves are added, then halves of the result)
greatest, least = _reduction(_chosen(">")), _reduction(_chosen("<"))
total = _reduction(lambda b, v, x, y: b.fadd(x, y) if v.is_float else b.add(x, y))
