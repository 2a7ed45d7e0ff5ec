"""The values of quantized matrices, one after the other, in float64: from a module's tensors by the suffixes of their
names."""

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

Parts = Mapping[str, NDArray]


def e4m3(code: int) -> float:
    """OCP 8-bit float: sign, 4 bits of exponent (bias 7), 3 of mantissa; no infinities. arXiv:2209.05433"""
    sign, e, m = -1 if code & 128 else 1, code >> 3 & 15, code & 7
    if code & 127 == 127:
        return float("nan")
    return sign * (2.0 ** (e - 7) * (1 + m / 8) if e else 2.0**-6 * m / 8)


def e5m2(code: int) -> float:
    return float(np.array([code << 8], np.uint16).view(np.float16)[0])


def scale_at(scale: NDArray, r: int, c: int, shape: tuple[int, int], block: tuple[int, int] | None) -> float:
    if scale.size == 1:
        return float(scale.reshape(-1)[0])
    if scale.ndim == 1:
        return float(scale[r])
    if block:
        return float(scale[r // block[0], c // block[1]])
    return float(scale[r, c // (shape[1] // scale.shape[1])])


def in_place(p: Parts, decode: object, scale: str, block: tuple[int, int] | None = None) -> NDArray[np.float64]:
    """8-bit values with their scales, and zero points if there are any."""
    w, s, z = p["weight"], p[scale], p.get("weight_zero_point")
    out = np.zeros(w.shape)
    for r in range(w.shape[0]):
        for c in range(w.shape[1]):
            value = decode(int(w[r, c])) if callable(decode) else float(w[r, c])
            if z is not None:
                value -= scale_at(z, r, c, w.shape, block)
            out[r, c] = value * scale_at(s, r, c, w.shape, block)
    return out


def field(word: int, i: int, bits: int) -> int:
    return (word & 0xFFFFFFFF) >> (bits * i) & ((1 << bits) - 1)


def packed(p: Parts, bits: int) -> NDArray[np.float64]:
    """compressed-tensors' format pack-quantized."""
    n_rows, n = (int(x) for x in p["weight_shape"])
    w, s, z, order = (p.get(f"weight_{end}") for end in ("packed", "scale", "zero_point", "g_idx"))
    assert w is not None and s is not None
    per, out = 32 // bits, np.zeros((n_rows, n))
    for r in range(n_rows):
        for c in range(n):
            g = int(order[c]) if order is not None else c // (n // s.shape[1])
            q = field(int(w[r, c // per]), c % per, bits)
            zero = 1 << (bits - 1) if z is None else field(int(z[r // per, g]), r % per, bits)
            out[r, c] = (q - zero) * float(s[r, g])
    return out


def gptq(p: Parts, bits: int, v2: bool) -> NDArray[np.float64]:
    w, z, s, order = p["qweight"], p["qzeros"], p["scales"], p["g_idx"]
    per = 32 // bits
    n, n_rows = w.shape[0] * per, w.shape[1]
    out = np.zeros((n_rows, n))
    for r in range(n_rows):
        for c in range(n):
            g = int(order[c])
            zero = field(int(z[g, r // per]), r % per, bits)
            zero = zero if v2 else (zero + 1) % (1 << bits)
            out[r, c] = (field(int(w[c // per, r]), c % per, bits) - zero) * float(s[g, r])
    return out


def awq(p: Parts) -> NDArray[np.float64]:
    w, z, s = p["qweight"], p["qzeros"], p["scales"]
    n, n_rows = w.shape[0], 8 * w.shape[1]
    place = {row: i for i, row in enumerate((0, 2, 4, 6, 1, 3, 5, 7))}
    out = np.zeros((n_rows, n))
    for r in range(n_rows):
        for c in range(n):
            g = c // (n // s.shape[0])
            q, zero = (field(int(t[i, r // 8]), place[r % 8], 4) for t, i in ((w, c), (z, g)))
            out[r, c] = (q - zero) * float(s[g, r])
    return out


E2M1 = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)


def e2m1(code: int) -> float:
    return -E2M1[code & 7] if code & 8 else E2M1[code]


def e8m0(code: int) -> float:
    return float("nan") if code == 255 else 2.0 ** (code - 127)


def bit_field(row: NDArray, c: int, bits: int) -> int:
    """Field c of a row of bytes or words, which is one stream of bits, low ones first."""
    stream = int.from_bytes(row.tobytes(), "little")
    return stream >> (bits * c) & ((1 << bits) - 1)


def block_floats(
    codes: NDArray, scales: NDArray, per_scale: int, *, bits: int = 4, factor: float = 1.0
) -> NDArray[np.float64]:
    """E2M1 (or E4M3, of 8 bits) with E4M3 scales of 16 values, or E8M0 scales of 32."""
    n_rows, n = codes.shape[0], codes[0].nbytes * 8 // bits
    value, scale = (e2m1 if bits == 4 else e4m3), (e4m3 if per_scale == 16 else e8m0)
    out = np.zeros((n_rows, n))
    for r in range(n_rows):
        for c in range(n):
            out[r, c] = value(bit_field(codes[r], c, bits)) * scale(int(scales[r, c // per_scale])) * factor
    return out


def mlx_affine(p: Parts, bits: int, group: int) -> NDArray[np.float64]:
    """Products of at most 8 bits and scales of 16 are exact in f32; the sum is rounded once."""
    w, s, b = p["weight"], p["scales"], p["biases"]
    n_rows, n = w.shape[0], w.shape[1] * 32 // bits
    out = np.zeros((n_rows, n))
    for r in range(n_rows):
        for c in range(n):
            out[r, c] = bit_field(w[r], c, bits) * float(s[r, c // group]) + float(b[r, c // group])
    return out


def bnb_four_bits(
    p: Parts, shape: tuple[int, int], block: int, nested_block: int = 0, offset: float = 0.0
) -> NDArray[np.float64]:
    flat, table, out = p["weight"].reshape(-1).view(np.uint8), p["weight.quant_map"], []
    for i in range(shape[0] * shape[1]):
        code = flat[i // 2] >> 4 if i % 2 == 0 else flat[i // 2] & 15
        absmax = p["weight.absmax"][i // block]
        if nested_block:
            of_block = p["weight.nested_absmax"][i // block // nested_block]
            # bitsandbytes itself computes scales in f32
            absmax = np.float32(p["weight.nested_quant_map"][absmax] * of_block) + np.float32(offset)
        out.append(float(table[code]) * float(absmax))
    return np.array(out).reshape(shape)


def hqq(p: Parts, shape: tuple[int, int], bits: int, axis: int) -> NDArray[np.float64]:
    per_word = {8: 1, 4: 2, 3: 10, 2: 4, 1: 8}[bits]
    words = p["W_q"]
    step, wide = words.shape
    out = np.zeros(shape[0] * shape[1])
    for i in range(out.size):
        r, c = divmod(i, wide)
        part, r_in_part = divmod(r, step)
        q = int(words[r_in_part, c]) >> (bits * (per_word - 1 - part)) & ((1 << bits) - 1)
        g = r if axis == 1 else c
        out[i] = np.float32(q - p["zero"].reshape(-1)[g]) * float(p["scale"].reshape(-1)[g])
    return out.reshape(shape)
