"""Stored keys and values as arrays: views of their planes, decoding, and encoding with the bits of the kernels.

Layout and rounding: kernels/attention/kv.py and kv_store.py.
"""

import math

import numpy as np
import numpy.typing as npt

from ..kernels.attention.kv import CODEBOOK, GROUP, K_LANES, WORD, KVType, padded_head
from ..kernels.attention.kv_store import LARGEST

Parts = dict[str, np.ndarray]  # name of a plane -> its elements [..., element]
F32 = npt.NDArray[np.float32]

LARGEST_F16 = np.float32(65504)
_LEVELS = np.array(CODEBOOK, np.float32)
_MIDDLES = (_LEVELS[1:] + _LEVELS[:-1]) / 2
_SHIFTS = np.array([0, 8, 16, 24, 4, 12, 20, 28], np.uint32)


def row_views(stored: npt.NDArray[np.uint8], kind: KVType, width: int) -> Parts:
    """Name -> view [..., element] of each plane of rows, u8 [..., bytes of a row], without padding."""
    views, at = {}, 0
    for plane in kind.planes:
        end = at + plane.size * plane.count(padded_head(width))
        views[plane.name] = stored[..., at:end].view(plane.dtype)[..., : plane.count(width)]
        at = end
    return views


def value_views(stored: npt.NDArray[np.uint8], kind: KVType, width: int) -> Parts:
    """Name -> view [..., 16, element] of each plane of blocks of V, u8 [..., bytes of 16 positions]."""
    code_row = padded_head(width) // WORD * kind.eighth
    rows = stored[..., : K_LANES * code_row].reshape(*stored.shape[:-1], K_LANES, code_row)
    codes = KVType(kind.name, tuple(plane for plane in kind.planes if plane not in kind.groups))
    views = row_views(rows, codes, width)
    at = K_LANES * code_row
    for plane in kind.groups:
        n = plane.count(width)
        end = at + plane.size * n * K_LANES
        lanes = stored[..., at:end].view(plane.dtype).reshape(*stored.shape[:-1], n, K_LANES)
        views[plane.name] = lanes.swapaxes(-1, -2)
        at = end
    return views


def key_views(stored: npt.NDArray[np.uint8], kind: KVType, width: int) -> Parts:
    """Name -> view [..., 16, element] of each plane of blocks of K, u8 [..., bytes of 16 positions]."""
    views, at = {}, 0
    for plane in kind.planes:
        n = plane.count(padded_head(width))
        end = at + plane.size * n * K_LANES
        lanes = stored[..., at:end].view(plane.dtype).reshape(*stored.shape[:-1], n, K_LANES)
        views[plane.name] = lanes[..., : plane.count(width), :].swapaxes(-1, -2)
        at = end
    return views


def transformed(x: npt.NDArray[np.float64], block: int) -> npt.NDArray[np.float64]:
    """Walsh-Hadamard transform of each block of values of [..., width], normalized, so its own inverse; 0: x."""
    if not block:
        return x
    y = x.reshape(*x.shape[:-1], -1, block) / math.sqrt(block)
    for distance in (1 << i for i in range(block.bit_length() - 1)):
        pairs = y.reshape(*y.shape[:-1], -1, 2, distance)
        a, b = pairs[..., 0, :], pairs[..., 1, :]
        y = np.stack([a + b, a - b], axis=-2).reshape(y.shape)
    return y.reshape(x.shape)


def decoded(parts: Parts, kind: KVType, width: int) -> npt.NDArray[np.float64]:
    """The stored values [..., width]."""
    codes = parts[""]
    if kind.name == "bf16":
        return (codes.astype(np.uint32) << 16).view(np.float32).astype(np.float64)
    if not kind.packed:
        x = codes.astype(np.float64)
    else:
        high = parts.get(".high")
        x = _numbers(kind, unpacked_codes(codes, high)[..., :width])
    for name, combine in ((".scale", np.multiply), (".min", np.add)):
        if name in parts:
            x = combine(x, np.repeat(parts[name].astype(np.float64), GROUP, axis=-1)[..., :width])
    return x


def unpacked_codes(words: npt.NDArray[np.uint32], high: npt.NDArray[np.uint8] | None) -> npt.NDArray[np.int64]:
    """Codes [..., 8 * element] of words [..., element], not negative."""
    codes = (words[..., None] >> _SHIFTS & 15).astype(np.int64)
    if high is not None:
        codes += (high[..., None] >> np.arange(WORD, dtype=np.uint8) & 1).astype(np.int64) << 4
    return codes.reshape(*words.shape[:-1], -1)


def _numbers(kind: KVType, codes: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
    """The numbers that codes stand for, before the scale."""
    if kind.name == "iq4_nl":
        return _LEVELS[codes].astype(np.float64)
    return (codes - kind.middle).astype(np.float64)


def encoded(x: npt.NDArray[np.float64], kind: KVType) -> Parts:
    """Inverse of `decoded`, rounded as the kernel does."""
    y = x.astype(np.float32)
    if kind.name == "f32":
        return {"": y}
    if kind.name == "f16":
        return {"": _saturated(y)}
    if kind.name == "bf16":
        return {"": _to_bf16(y)}
    width = y.shape[-1]
    groups = np.zeros((*y.shape[:-1], -(-width // GROUP) * GROUP), np.float32)
    groups[..., :width] = y
    groups = groups.reshape(*y.shape[:-1], -1, GROUP)
    with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
        parts = _byte_codes(groups) if kind.name == "q8_0" else _packed(groups, kind)
    parts[".scale"][~np.isfinite(groups).all(axis=-1)] = np.nan
    return {plane.name: parts[plane.name][..., : plane.count(width)] for plane in kind.planes}


def _saturated(y: F32) -> npt.NDArray[np.float16]:
    return np.where(np.isfinite(y), np.clip(y, -LARGEST_F16, LARGEST_F16), y).astype(np.float16)


def _to_bf16(y: F32) -> npt.NDArray[np.uint16]:
    bits = np.ascontiguousarray(y).view(np.uint32)
    rounded = (bits + (bits >> 16 & 1) + 0x7FFF) >> 16
    return np.where(np.isnan(y), bits >> 16 | 64, rounded).astype(np.uint16)


def _byte_codes(groups: F32) -> Parts:
    """Codes and scales of q8_0; groups [..., group, 32]."""
    largest = np.fmax.reduce(np.abs(groups), axis=-1) / np.float32(127)
    scales = np.minimum(largest, LARGEST_F16).astype(np.float16)
    inverse = _inverse(scales.astype(np.float32))[..., None]
    codes = np.clip(np.nan_to_num(np.rint(groups * inverse), nan=-127), -127, 127).astype(np.int8)
    return {"": codes.reshape(*groups.shape[:-2], -1), ".scale": scales}


def _packed(groups: F32, kind: KVType) -> Parts:
    """Planes of types of 4 and 5 bits."""
    x = np.fmin(np.fmax(groups, np.float32(-LARGEST)), np.float32(LARGEST))
    codes, scale, low = _with_minimum(x, kind) if ".min" in kind.has else (*_symmetric(x, kind), None)
    parts: Parts = {".scale": _saturated(scale)}
    if low is not None:
        parts[".min"] = _saturated(low)
    return {**packed_codes(codes.reshape(*groups.shape[:-2], -1)), **parts}


def packed_codes(codes: npt.NDArray[np.int64]) -> Parts:
    """Inverse of `unpacked_codes`: words, and the plane of fifth bits, of codes [..., n]."""
    codes = codes.reshape(*codes.shape[:-1], -1, WORD)
    words = np.bitwise_or.reduce((codes & 15).astype(np.uint32) << _SHIFTS, axis=-1)
    bits = (codes >> 4 & 1).astype(np.uint8) << np.arange(WORD, dtype=np.uint8)
    return {"": words, ".high": np.bitwise_or.reduce(bits, axis=-1)}


def _symmetric(x: F32, kind: KVType) -> tuple[npt.NDArray[np.int64], F32]:
    table = kind.name == "iq4_nl"
    levels = 127 if table else 16 if ".high" in kind.has else 8
    most, least = x.max(axis=-1), x.min(axis=-1)
    d = np.where(most > -least, most, least) / np.float32(-levels)
    y = np.nan_to_num(x * _inverse(d)[..., None], nan=-np.inf)
    if table:
        codes = np.searchsorted(_MIDDLES, y, side="left")
        q = _LEVELS[codes]
    else:
        q = np.clip(np.rint(y), -levels, levels - 1).astype(np.float32)
        codes = q.astype(np.int64) + kind.middle
    d = _divided(_total(x * q), _total(q * q))
    return codes, d


def _with_minimum(x: F32, kind: KVType) -> tuple[npt.NDArray[np.int64], F32, F32]:
    top, n = np.float32(31 if ".high" in kind.has else 15), np.float32(GROUP)
    low = x.min(axis=-1)
    d = (x.max(axis=-1) - low) / top
    total = _total(x)
    y = np.nan_to_num((x - low[..., None]) * _inverse(d)[..., None])
    q = np.clip(np.rint(y), 0, top).astype(np.float32)
    sum_q = _total(q)
    d = _divided(n * _total(x * q) - total * sum_q, n * _total(q * q) - sum_q * sum_q)
    d = _saturated(d).astype(np.float32)
    return q.astype(np.int64), d, ((total - d * sum_q) / n).astype(np.float32)


def _inverse(d: F32) -> F32:
    """1 / d; 0 for 0 and NaN."""
    return np.divide(np.float32(1), d, out=np.zeros_like(d), where=(d != 0) & ~np.isnan(d))


def _divided(a: F32, b: F32) -> F32:
    return np.divide(a, b, out=np.zeros_like(a), where=b > 0)


def _total(x: F32) -> F32:
    """Sum of 32 values in the kernel's order: the later half is added to the earlier, until one is left."""
    n = x.shape[-1]
    while n > 1:
        n //= 2
        x = x[..., :n] + x[..., n:]
    return x[..., 0]
