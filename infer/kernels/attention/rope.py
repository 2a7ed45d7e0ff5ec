"""Rotary position embedding (Su et al. 2021, arXiv:2104.09864): pairs of values of a head rotate with the position.

ctl      i64 [3]       number of tokens, of segments, of outputs
pos      i64 [tok]     position of the token: its index in the sequence unless positions were shifted or divided
counter  i64           the next work item; zero before each run
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from ..build.jit import kernel
from ..emit.emitter import F32, I64, Emitter, Value, Vec, atomic_add, const, emit, ldi
from ..emit.fields import Address, Counter, Int

ROTATE_ITEM = 4096  # values rotated by one work item

NORM, NEOX = 0, 1  # styles of `rope`


def rope_turns(
    n_rot: int, freq_base: float, freq_scale: float = 1.0, factors: npt.ArrayLike | None = None
) -> npt.NDArray[np.float64]:
    """Radians by which each pair rotates per position, f64 [n_rot / 2]:
    pair i by freq_scale * freq_base ** (-2 i / n_rot) / factors[i]."""
    turns = float(freq_base) ** (-2.0 * np.arange(n_rot // 2, dtype=np.float64) / n_rot) * freq_scale
    return turns if factors is None else turns / np.asarray(factors, np.float64)


def rope_table(
    n_ctx: int,
    n_rot: int,
    freq_base: float,
    freq_scale: float = 1.0,
    factors: npt.ArrayLike | None = None,
    magnitude: float = 1.0,
) -> npt.NDArray[np.float32]:
    """cos and sin of `rope`: f32 [n_ctx, n_rot / 2, 2], computed in float64.

    The angles are position * `rope_turns`; cos and sin are multiplied with `magnitude`.
    """
    return rope_rows(0, n_ctx, rope_turns(n_rot, freq_base, freq_scale, factors), magnitude)


def rope_rows(first: int, end: int, turns: npt.NDArray[np.float64], magnitude: float = 1.0) -> npt.NDArray[np.float32]:
    """Rows first .. end - 1 of `rope_table`: f32 [end - first, n_rot / 2, 2]."""
    angle = np.arange(first, end, dtype=np.float64)[:, None] * turns
    return np.stack([np.cos(angle) * magnitude, np.sin(angle) * magnitude], axis=-1).astype(np.float32)


def _rotate(width: int, neox: bool) -> Callable[..., Any]:
    """Emits the rotation of `width` pairs from pair i on: (a, b) -> (a cos - b sin, a sin + b cos)."""

    def rotate(e: Emitter, x: Value, table: Value, i: Value, half: Value) -> None:
        b = e.b
        one, two = Vec(F32, width), Vec(F32, 2 * width)
        evens, odds = list(range(0, 2 * width, 2)), list(range(1, 2 * width, 2))
        offset = b.shl(i, const(I64, 3))
        cs = e.load(two, table, offset)
        c, s = e.shuffle(cs, evens), e.shuffle(cs, odds)
        if neox:
            low = b.shl(i, const(I64, 2))
            high = b.add(low, b.shl(half, const(I64, 2)))
            u, v = e.load(one, x, low), e.load(one, x, high)
        else:
            uv = e.load(two, x, offset)
            u, v = e.shuffle(uv, evens), e.shuffle(uv, odds)
        first = e.fma(u, c, b.fneg(b.fmul(v, s)))
        second = e.fma(u, s, b.fmul(v, c))
        if neox:
            e.store(first, x, low)
            e.store(second, x, high)
        else:
            e.store(e.shuffle(first, [j // 2 + width * (j % 2) for j in range(2 * width)], second), x, offset)

    return rotate


_ROTATE = "i64,i64,i64,i64->void"
rotate_norm_wide, rotate_norm_one = emit(_ROTATE)(_rotate(8, False)), emit(_ROTATE)(_rotate(1, False))
rotate_neox_wide, rotate_neox_one = emit(_ROTATE)(_rotate(8, True)), emit(_ROTATE)(_rotate(1, True))


@kernel
def rope(
    a, tid, nth, *, ctl: Address, pos: Address, x: Address, ldx: Int, n_head: Int, d_head: Int, n_rot: Int,
    table: Address, style: Int, counter: Counter,
):  # fmt: skip
    """Rotary position embedding of the first n_rot values of each head, in place.

    ctl, pos, counter  batch control
    x                  f32 [tok][head][d_head]
    n_rot              even
    table              f32 [n_ctx][n_rot / 2][2] cos, sin: see `rope_table`
    style              NORM: pairs (2i, 2i + 1), NEOX: pairs (i, i + n_rot / 2)

    Reference: tests/reference/attention.py. Error: 2e-7 of max(1, |x|).
    """
    half, neox = n_rot // 2, style != NORM
    total = ldi(ctl) * n_head
    chunk = max(1, ROTATE_ITEM // max(1, d_head))
    while True:
        first = atomic_add(counter, 1) * chunk
        if first >= total:
            break
        for j in range(first, min(total, first + chunk)):
            t = j // n_head
            head = x + t * ldx + (j - t * n_head) * d_head * 4
            turns = table + ldi(pos + 8 * t) * half * 8
            i = 0
            if neox:
                while i + 8 <= half:
                    rotate_neox_wide(head, turns, i, half)
                    i += 8
                while i < half:
                    rotate_neox_one(head, turns, i, half)
                    i += 1
            else:
                while i + 8 <= half:
                    rotate_norm_wide(head, turns, i, half)
                    i += 8
                while i < half:
                    rotate_norm_one(head, turns, i, half)
                    i += 1
