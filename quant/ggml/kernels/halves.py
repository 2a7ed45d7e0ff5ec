"""F16, BF16 and F32: conversions in vectors, and arrays of them. Bytes equal to those of `formats.float`.

In integers, for there are processors without instructions for it, and the results must not depend on them.
"""

import numpy as np

from .lanes import bits, fast, floats, lane, load32, select, splat, store, to_u16, widened

_BELOW_HALVES = 2.0**112  # from an exponent of f16, moved to the place of one of f32, to its value


@fast
def half_bits(x):  # type: ignore[no-untyped-def]
    """f32 lanes -> i32 with the bits of the nearest f16, halves to even."""
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
def of_half(h):  # type: ignore[no-untyped-def]
    """i32 lanes with the bits of an f16 -> f32."""
    u = h & 0x7FFF
    moved = u << 13
    value = select(u > 0x7BFF, floats(moved | 0x7F800000), floats(moved) * np.float32(_BELOW_HALVES))
    return floats(bits(value) | ((h & 0x8000) << 16))


@fast
def put_half(out, at, value):  # type: ignore[no-untyped-def]
    """The f32 `value` as the f16 in bytes at, at + 1 of out u8."""
    h = lane(half_bits(splat(value)), 0)
    out[at] = np.uint8(h & 255)
    out[at + 1] = np.uint8((h >> 8) & 255)


@fast
def half_at(raw, at):  # type: ignore[no-untyped-def]
    """f32 of the f16 in bytes at, at + 1 of raw u8."""
    return lane(of_half(splat(np.int32(raw[at]) | (np.int32(raw[at + 1]) << 8))), 0)


@fast
def put_word(out, at, word):  # type: ignore[no-untyped-def]
    """An i32 in bytes at to at + 3 of out u8."""
    for i in range(4):
        out[at + i] = np.uint8((word >> (8 * i)) & 255)


@fast
def word_at(raw, at):  # type: ignore[no-untyped-def]
    """The reverse of `put_word`."""
    word = np.int32(0)
    for i in range(4):
        word |= np.int32(raw[at + i]) << np.int32(8 * i)
    return np.int32(word)


@fast
def encode_f16(x, out):  # type: ignore[no-untyped-def]
    """x f32 [n] -> out u16 [n]."""
    for i in range(0, len(x) - 31, 32):
        store(out, i, to_u16(half_bits(load32(x, i))))
    for i in range(len(x) // 32 * 32, len(x)):
        out[i] = np.uint16(lane(half_bits(splat(x[i])), 0))


@fast
def decode_f16(raw, out):  # type: ignore[no-untyped-def]
    """raw u16 [n] -> out f32 [n]."""
    for i in range(0, len(out) - 31, 32):
        store(out, i, of_half(widened(load32(raw, i))))
    for i in range(len(out) // 32 * 32, len(out)):
        out[i] = lane(of_half(splat(np.int32(raw[i]))), 0)


@fast
def _brain(x):  # type: ignore[no-untyped-def]
    b = bits(x)
    rounded = (b + (((b >> 16) & 1) + 0x7FFF)) >> 16
    return select((b & 0x7FFFFFFF) > 0x7F800000, (b >> 16) | 0x40, rounded)


@fast
def encode_bf16(x, out):  # type: ignore[no-untyped-def]
    """x f32 [n] -> out u16 [n]."""
    for i in range(0, len(x) - 31, 32):
        store(out, i, to_u16(_brain(load32(x, i))))
    for i in range(len(x) // 32 * 32, len(x)):
        out[i] = np.uint16(lane(_brain(splat(x[i])), 0) & 0xFFFF)


@fast
def decode_bf16(raw, out):  # type: ignore[no-untyped-def]
    """raw u16 [n] -> out f32 [n]."""
    for i in range(0, len(out) - 31, 32):
        store(out, i, floats(widened(load32(raw, i)) << 16))
    for i in range(len(out) // 32 * 32, len(out)):
        out[i] = lane(floats(splat(np.int32(raw[i])) << 16), 0)
