"""F16, BF16 and F32: conversions of vectors and of arrays. Bytes are equal to `formats.float`.

Uses integer arithmetic if the processor has no instructions for it; only the results for NaNs differ.
"""

from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from .lanes import as_bytes, bits, cpu_features, fast, floats, load32, select, splat, store, to_u16, widened
from .lanes_across import lane, lower

_BELOW_HALVES = 2.0**112  # from an exponent of f16, moved to the place of one of f32, to its value


# Whether the processor has instructions between f32 and f16. For numbers they give the integer code's results.
HARDWARE_HALVES = "f16c" in cpu_features()


@intrinsic
def _hardware_half(typing: Any, x: Any) -> Any:
    """f32 lanes -> i32 with the bits of the nearest f16, halves to even; only with `HARDWARE_HALVES`."""
    vec = x.of(types.int32)

    def emit(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        half = builder.fptrunc(args[0], ir.VectorType(ir.HalfType(), x.n))
        return builder.zext(builder.bitcast(half, ir.VectorType(ir.IntType(16), x.n)), vec.ir)

    return vec(x), emit


@intrinsic
def _hardware_of_half(typing: Any, x: Any) -> Any:
    """The reverse."""
    vec = x.of(types.float32)

    def emit(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        half = builder.bitcast(
            builder.trunc(args[0], ir.VectorType(ir.IntType(16), x.n)), ir.VectorType(ir.HalfType(), x.n)
        )
        return builder.fpext(half, vec.ir)

    return vec(x), emit


@fast
def half_bits(x):
    """f32 lanes -> i32 with the bits of the nearest f16, halves to even."""
    if HARDWARE_HALVES:
        return _hardware_half(x)
    b = bits(x)
    u = b & 0x7FFFFFFF
    normal = (u + (0xFFF - (112 << 23)) + ((u >> 13) & 1)) >> 13
    # where f16 has no leading one, 0.5 puts its last bit where f32 has its own
    small = bits(floats(u) + np.float32(0.5)) - 0x3F000000
    h = select(u < 0x38800000, small, normal)
    h = select(h > 0x7C00, 0x7C00, h)
    h = select(u > 0x7F800000, 0x7E00, h)
    return h | ((b >> 16) & 0x8000)


@fast
def of_half(h):
    """i32 lanes with the bits of an f16 -> f32."""
    if HARDWARE_HALVES:
        return _hardware_of_half(h)
    u = h & 0x7FFF
    moved = u << 13
    value = select(u > 0x7BFF, floats(moved | 0x7F800000), floats(moved) * np.float32(_BELOW_HALVES))
    return floats(bits(value) | ((h & 0x8000) << 16))


@fast
def put_word16(out, at, word):
    """The lower half of an i32 in bytes at, at + 1 of out u8."""
    store(out, at, lower(lower(lower(as_bytes(to_u16(splat(word)))))))


@fast
def put_half(out, at, value):
    """The f32 `value` as the f16 in bytes at, at + 1 of out u8."""
    put_word16(out, at, lane(half_bits(splat(value)), 0))


@fast
def half_at(raw, at):
    """f32 of the f16 in bytes at, at + 1 of raw u8."""
    return lane(of_half(splat(np.int32(raw[at]) | (np.int32(raw[at + 1]) << 8))), 0)


@fast
def put_word(out, at, word):
    """An i32 in bytes at to at + 3 of out u8."""
    for i in range(4):
        out[at + i] = np.uint8((word >> (8 * i)) & 255)


@fast
def word_at(raw, at):
    """The reverse of `put_word`."""
    word = np.int32(0)
    for i in range(4):
        word |= np.int32(raw[at + i]) << np.int32(8 * i)
    return np.int32(word)


@fast
def f16_at(raw, i):
    """f32x32 of raw[i:i + 32], 16-bit numbers with the bits of F16."""
    return of_half(widened(load32(raw, i)))


@fast
def bf16_at(raw, i):
    return floats(widened(load32(raw, i)) << 16)


@fast
def put_f16(v, out, at):
    """f32x32 as F16 into 64 bytes of out u8; returns f32 of the written values."""
    h = half_bits(v)
    store(out, at, as_bytes(to_u16(h)))
    return of_half(h)


@fast
def put_bf16(v, out, at):
    b = brain_bits(v)
    store(out, at, as_bytes(to_u16(b)))
    return floats(b << 16)


@fast
def encode_f16(x, out):
    """x f32 [n] -> out u16 [n]."""
    for i in range(0, len(x) - 31, 32):
        store(out, i, to_u16(half_bits(load32(x, i))))
    for i in range(len(x) // 32 * 32, len(x)):
        out[i] = np.uint16(lane(half_bits(splat(x[i])), 0))


@fast
def decode_f16(raw, out):
    """raw u16 [n] -> out f32 [n]."""
    for i in range(0, len(out) - 31, 32):
        store(out, i, f16_at(raw, i))
    for i in range(len(out) // 32 * 32, len(out)):
        out[i] = lane(of_half(splat(np.int32(raw[i]))), 0)


@fast
def brain_bits(x):
    b = bits(x)
    rounded = (b + (((b >> 16) & 1) + 0x7FFF)) >> 16
    return select((b & 0x7FFFFFFF) > 0x7F800000, (b >> 16) | 0x40, rounded)


@fast
def encode_bf16(x, out):
    """x f32 [n] -> out u16 [n]."""
    for i in range(0, len(x) - 31, 32):
        store(out, i, to_u16(brain_bits(load32(x, i))))
    for i in range(len(x) // 32 * 32, len(x)):
        out[i] = np.uint16(lane(brain_bits(splat(x[i])), 0) & 0xFFFF)


@fast
def decode_bf16(raw, out):
    """raw u16 [n] -> out f32 [n]."""
    for i in range(0, len(out) - 31, 32):
        store(out, i, bf16_at(raw, i))
    for i in range(len(out) // 32 * 32, len(out)):
        out[i] = lane(floats(splat(np.int32(raw[i])) << 16), 0)
