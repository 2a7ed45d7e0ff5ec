"""Stored weights to blocks and their errors, in one pass over memory and one call.

Bytes are equal to `coding.encode`, sums to `errors.error_sums` over the output of `coding.decode`; types without a
function here use these three, piece by piece.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numba import types
from numba.core.datamodel.models import OpaqueModel
from numba.extending import NativeValue, overload, register_model, unbox

from ..types import TRAITS, GGMLType
from . import direct, halves
from .errors import SHORT, with_squares
from .halves import half_bits, of_half
from .lanes import bits, fast, load, load32, magnitude, select, splat, store, to_f64
from .lanes_across import greatest, total

_MOST = np.finfo(np.float32).max


class _Block(types.Opaque):
    """The type of a format's tag: selects the functions that are compiled."""

    def __init__(self, name: str) -> None:
        self.format = name
        super().__init__(f"block of {name}")


register_model(_Block)(OpaqueModel)


@unbox(_Block)
def _unbox(kind: _Block, value: Any, c: Any) -> NativeValue:
    return NativeValue(c.context.get_dummy_value())


class _Tag:
    def __init__(self, kind: GGMLType) -> None:
        self._numba_type_ = _Block(kind.name)


class _Scales(NamedTuple):
    """Scales of a block: 1 / d or 0, its minimum, and both as read back, with their bits in f16."""

    inverse: float
    least: float
    d: float
    m: float
    d_bits: int
    m_bits: int


@dataclass(frozen=True)
class _Format:
    """Functions of a format: measure(v f32x32) -> two numbers of a block; scale(both numbers of 8 blocks, f32x8 each)
    -> d, minimum; put(v, scales, out, at) writes 32 weights and returns the written values, f32x32. All take the tag
    first."""

    measure: Callable[..., Any]
    scale: Callable[..., Any]
    put: Callable[..., Any]


def _no_measure(tag, v):
    return np.float32(0), np.float32(0)


def _no_scale(tag, a, b):
    return a, b


def _largest(tag, v):
    return direct.largest_of(v), np.float32(0)


def _extremes(tag, v):
    return direct.extremes(v)


_FORMATS: dict[GGMLType, _Format] = {
    GGMLType.F16: _Format(_no_measure, _no_scale, lambda tag, v, s, out, at: halves.put_f16(v, out, at)),
    GGMLType.BF16: _Format(_no_measure, _no_scale, lambda tag, v, s, out, at: halves.put_bf16(v, out, at)),
    GGMLType.Q4_0: _Format(
        _largest,
        lambda tag, a, b: (a * np.float32(-1 / 8), b),
        lambda tag, v, s, out, at: direct.put_q4_0(v, s, out, at),
    ),
    GGMLType.Q4_1: _Format(
        _extremes,
        lambda tag, a, b: ((b - a) / np.float32(15), a),
        lambda tag, v, s, out, at: direct.put_q4_1(v, s, out, at),
    ),
    GGMLType.Q5_0: _Format(
        _largest,
        lambda tag, a, b: (a * np.float32(-1 / 16), b),
        lambda tag, v, s, out, at: direct.put_q5_0(v, s, out, at),
    ),
    GGMLType.Q5_1: _Format(
        _extremes,
        lambda tag, a, b: ((b - a) / np.float32(31), a),
        lambda tag, v, s, out, at: direct.put_q5_1(v, s, out, at),
    ),
    GGMLType.Q8_0: _Format(
        lambda tag, v: (direct.largest_size(v), np.float32(0)),
        lambda tag, a, b: (a / np.float32(127), b),
        lambda tag, v, s, out, at: direct.put_q8_0(v, s, out, at),
    ),
}
TARGETS = set(_FORMATS)
_TAGS = {kind: _Tag(kind) for kind in _FORMATS}
# numpy type in which a row of a source type is viewed; i16 stands for F16
_SOURCES = {GGMLType.F32: np.float32, GGMLType.BF16: np.uint16, GGMLType.F16: np.int16}


def _measure(tag, v):
    raise NotImplementedError


@overload(_measure)
def _chosen_measure(tag, v):
    return _FORMATS[GGMLType[tag.format]].measure


def _scale(tag, a, b):
    raise NotImplementedError


@overload(_scale)
def _chosen_scale(tag, a, b):
    return _FORMATS[GGMLType[tag.format]].scale


def _put(tag, v, s, out, at):
    raise NotImplementedError


@overload(_put)
def _chosen_put(tag, v, s, out, at):
    return _FORMATS[GGMLType[tag.format]].put


def _weights(source, at):
    """f32x32 of stored weights."""
    raise NotImplementedError


@overload(_weights)
def _read(source, at):
    if source.dtype == types.float32:
        return lambda source, at: load32(source, at)
    if source.dtype == types.uint16:
        return lambda source, at: halves.bf16_at(source, at)
    return lambda source, at: halves.f16_at(source, at)


@fast
def _recode(tag, source, rows, k, step, out, sums):
    # the blocks of a run are measured, then scaled together, then written: no weight waits for a division
    a, b = np.zeros(SHORT, np.float32), np.zeros(SHORT, np.float32)
    inverses, lows = np.empty(SHORT, np.float32), np.empty(SHORT, np.float32)
    ds, ms = np.empty(SHORT, np.float32), np.empty(SHORT, np.float32)
    d_bits, m_bits = np.empty(SHORT, np.int32), np.empty(SHORT, np.int32)
    finite = True
    for row in range(rows):
        error = splat(np.float64(0))
        old, new = error, error
        last = (row + 1) * k // 32
        for first in range(row * k // 32, last, SHORT):
            count = min(SHORT, last - first)
            for j in range(count):
                a[j], b[j] = _measure(tag, _weights(source, (first + j) * 32))
            d, low = _scale(tag, load(a, 0), load(b, 0))
            inverse = splat(np.float32(1)) / d
            # 0 where that is not a number: a block of zeros, or a scale that is 0 in f16 anyway
            store(inverses, 0, select(magnitude(inverse) > splat(_MOST), np.float32(0), inverse))
            store(lows, 0, low)
            half = half_bits(d)
            store(d_bits, 0, half)
            store(ds, 0, of_half(half))
            half = half_bits(low)
            store(m_bits, 0, half)
            store(ms, 0, of_half(half))
            error32 = splat(np.float32(0))
            old32, new32 = error32, error32
            for j in range(count):
                x = _weights(source, (first + j) * 32)
                scales = _Scales(inverses[j], lows[j], ds[j], ms[j], d_bits[j], m_bits[j])
                y = _put(tag, x, scales, out, (first + j) * step)
                error32, old32, new32 = with_squares(y - x, error32), with_squares(x, old32), with_squares(y, new32)
            error, old, new = error + to_f64(error32), old + to_f64(old32), new + to_f64(new32)
        sums[row * 3] = total(error)
        sums[row * 3 + 1] = total(old)
        sums[row * 3 + 2] = total(new)
        finite &= sums[row * 3] + sums[row * 3 + 1] + sums[row * 3 + 2] < np.inf
    return finite


@fast
def _finite(source, n):
    most = bits(_weights(source, 0)) & 0
    for i in range(0, n, 32):
        size = bits(_weights(source, i)) & 0x7FFFFFFF
        most = select(size > most, size, most)
    return greatest(most) < 0x7F800000


def can_recode(source: GGMLType, target: GGMLType, n: int) -> bool:
    """Whether `recode` supports rows of n weights of these types; for `all_finite`: as source and target."""
    return source in _SOURCES and target in TARGETS and n % 32 == 0


def recode(source: GGMLType, target: GGMLType, raw: np.ndarray, out: np.ndarray, sums: np.ndarray) -> bool:
    """raw u8 [row, bytes] of `source` -> out u8 [row, bytes] of `target`, sums f64 [row, 3] as `error_sums` has them.

    False if a sum is infinite or NaN; `out` is then invalid.
    """
    traits = TRAITS[target]
    n = out.shape[1] // traits.nbytes * traits.block
    step = 32 // traits.block * traits.nbytes
    return bool(_recode(_TAGS[target], _seen(source, raw), len(out), n, step, out.reshape(-1), sums.reshape(-1)))


def all_finite(source: GGMLType, raw: np.ndarray) -> bool:
    """Whether weights that `can_recode` from u8 [n] are all finite."""
    stored = _seen(source, raw)
    return bool(_finite(stored, len(stored)))


def _seen(source: GGMLType, raw: np.ndarray) -> np.ndarray:
    """Bytes in C order as 16-bit numbers or f32, which stand for their type."""
    kind = np.dtype(_SOURCES[source])
    stored = raw.reshape(-1)
    return (stored.copy() if stored.ctypes.data % kind.itemsize else stored).view(kind)
