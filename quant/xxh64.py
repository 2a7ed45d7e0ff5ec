"""XXH64 with seed 0, the 64-bit hash of Yann Collet's xxHash. Specification: doc/xxhash_spec.md of that project."""

from typing import Any

import numpy as np
from numba import njit

from .ggml.kernels import compiling

compiling.watch()
_U = np.uint64
P1, P2, P3, P4, P5 = (
    _U(0x9E3779B185EBCA87), _U(0xC2B2AE3D27D4EB4F), _U(0x165667B19E3779F9), _U(0x85EBCA77C2B2AE63),
    _U(0x27D4EB2F165667C5),
)  # fmt: skip
STRIPE = 32


@njit(nogil=True, cache=True)
def _rotated(x: Any, n: int) -> Any:
    return (x << _U(n)) | (x >> _U(64 - n))


@njit(nogil=True, cache=True)
def _round(acc: Any, lane: Any) -> Any:
    return _rotated(acc + lane * P2, 31) * P1


@njit(nogil=True, cache=True)
def _consume(acc: np.ndarray, lanes: np.ndarray) -> None:
    """acc u64 [4] after lanes u64 [4 n]."""
    a, b, c, d = acc[0], acc[1], acc[2], acc[3]
    for i in range(0, lanes.size, 4):
        a, b = _round(a, lanes[i]), _round(b, lanes[i + 1])
        c, d = _round(c, lanes[i + 2]), _round(d, lanes[i + 3])
    acc[0], acc[1], acc[2], acc[3] = a, b, c, d


@njit(nogil=True, cache=True)
def _finish(acc: np.ndarray, rest: np.ndarray, total: int) -> Any:
    """The hash of `total` bytes, of which u8 `rest` (less than a stripe) were not consumed yet."""
    if total >= STRIPE:
        h = _rotated(acc[0], 1) + _rotated(acc[1], 7) + _rotated(acc[2], 12) + _rotated(acc[3], 18)
        for i in range(4):
            h = (h ^ _round(_U(0), acc[i])) * P1 + P4
    else:
        h = P5
    h += _U(total)
    i = 0
    while i + 8 <= rest.size:
        lane = _U(0)
        for k in range(8):
            lane |= _U(rest[i + k]) << _U(8 * k)
        h = _rotated(h ^ _round(_U(0), lane), 27) * P1 + P4
        i += 8
    if i + 4 <= rest.size:
        lane = _U(0)
        for k in range(4):
            lane |= _U(rest[i + k]) << _U(8 * k)
        h = _rotated(h ^ (lane * P1), 23) * P2 + P3
        i += 4
    while i < rest.size:
        h = _rotated(h ^ (_U(rest[i]) * P5), 11) * P1
        i += 1
    h = (h ^ (h >> _U(33))) * P2
    h = (h ^ (h >> _U(29))) * P3
    return h ^ (h >> _U(32))


class Xxh64:
    """Streaming, with the methods of hashlib's hashes."""

    def __init__(self) -> None:
        with np.errstate(over="ignore"):
            self._acc = np.array([P1 + P2, P2, _U(0), _U(0) - P1], np.uint64)
        self._rest = np.zeros(0, np.uint8)
        self._total = 0

    def update(self, data: np.ndarray | bytes) -> None:
        new = np.frombuffer(data, np.uint8)
        self._total += new.size
        if self._rest.size:
            missing = min(STRIPE - self._rest.size, new.size)
            self._rest, new = np.concatenate([self._rest, new[:missing]]), new[missing:]
            if self._rest.size < STRIPE:
                return
            _consume(self._acc, self._rest.view(np.uint64))
        whole = new.size // STRIPE * STRIPE
        if whole:
            body = new[:whole]
            _consume(self._acc, (body if body.ctypes.data % 8 == 0 else body.copy()).view(np.uint64))
        self._rest = new[whole:].copy()

    def hexdigest(self) -> str:
        return f"{int(_finish(self._acc, self._rest, self._total)):016x}"
