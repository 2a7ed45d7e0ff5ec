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
