"""Attention in float64: slow and obvious. Counterparts of infer/kernels/{rope,kv,attention}.py, one sequence at a
time."""

import numpy as np
import numpy.typing as npt

F64 = npt.NDArray[np.float64]


def rope(
    x: F64,
    pos: npt.NDArray[np.int64],
    n_rot: int,
    freq_base: float,
    freq_scale: float = 1.0,
    factors: F64 | None = None,
    neox: bool = False,
    magnitude: float = 1.0,
) -> F64:
    """x [tok, head, d_head], rotated: pair i of a head by the angle pos * scale * base^(-2 i / n_rot) / factor[i];
    rotated values are multiplied with `magnitude`."""
    y = np.array(x, np.float64)
    for i in range(n_rot // 2):
        angle = pos * freq_scale * freq_base ** (-2.0 * i / n_rot) / (1.0 if factors is None else factors[i])
        a, b = (i, i + n_rot // 2) if neox else (2 * i, 2 * i + 1)
        c, s = magnitude * np.cos(angle)[:, None], magnitude * np.sin(angle)[:, None]
        y[:, :, a] = x[:, :, a] * c - x[:, :, b] * s
        y[:, :, b] = x[:, :, a] * s + x[:, :, b] * c
    return y


def kept(x: npt.NDArray[np.float32], kind: str) -> npt.NDArray[np.float32]:
    """x [position, head_kv, d_head] after storing in a cache of this type."""
    x = x.astype(np.float32)
    if kind == "f32":
        return x
    if kind == "f16":
        return np.where(np.isfinite(x), np.clip(x, -65504, 65504), x).astype(np.float16).astype(np.float32)
    y = np.empty_like(x)
    for first in range(0, x.shape[-1], 32):
        group = x[..., first : first + 32]
        with np.errstate(invalid="ignore", divide="ignore"):
            largest = np.abs(group).max(axis=-1, keepdims=True)
            scale = np.minimum(largest / np.float32(127), np.float32(65504)).astype(np.float16).astype(np.float32)
            codes = np.rint(group * np.where(scale > 0, np.float32(1) / scale, np.float32(0))) + np.float32(0)
            scale = np.where(np.isfinite(group).all(axis=-1, keepdims=True), scale, np.float32(np.nan))
            y[..., first : first + 32] = np.clip(np.nan_to_num(codes, nan=0), -127, 127) * scale
    return y


def attention(
    q: F64,
    k: F64,
    v: F64,
    pos: npt.NDArray[np.int64],
    scale: float,
    window: int = 0,
    soft_cap: float = 0.0,
    sinks: F64 | None = None,
    aligned: bool = False,
) -> F64:
    """q [tok, head, d_head] at positions `pos`; k, v [position, head_kv, width] -> [tok, head, width of v]. sinks:
    [head], logits that take weight and have no value. aligned: windows begin at multiples of their size."""
    out = np.empty((*q.shape[:2], v.shape[2]))
    group = q.shape[1] // k.shape[1]
    place = np.arange(len(k))
    start = pos // window * window if aligned else pos - (window or len(k)) + 1
    seen = (place <= pos[:, None]) & (place >= start[:, None])
    for h in range(q.shape[1]):
        keys, values = k[:, h // group].astype(np.float64), v[:, h // group].astype(np.float64)
        scores = q[:, h].astype(np.float64) @ keys.T * scale
        if soft_cap:
            scores = soft_cap * np.tanh(scores / soft_cap)
        scores[~seen] = -np.inf
        sink = np.full((len(q), 1), -np.inf if sinks is None else sinks[h])
        top = np.maximum(scores.max(axis=1, keepdims=True), sink)
        weights = np.exp(scores - top)
        out[:, h] = weights @ values / (weights.sum(axis=1, keepdims=True) + np.exp(sink - top))
    return out
