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


CODEBOOK = np.array([-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113], np.float32)
F32 = npt.NDArray[np.float32]


def kept(x: F32, kind: str) -> F32:
    """x [position, head_kv, d_head] after storing in a cache of this type."""
    x = x.astype(np.float32)
    if kind == "f32":
        return x
    if kind == "f16":
        return np.where(np.isfinite(x), np.clip(x, -65504, 65504), x).astype(np.float16).astype(np.float32)
    if kind == "bf16":
        bits = np.ascontiguousarray(x).view(np.uint32).astype(np.uint64)
        low, even = bits & 0xFFFF, bits >> 16 & 1
        up = (low > 0x8000) | ((low == 0x8000) & (even == 1))
        rounded = (((bits >> 16) + up) << 16).astype(np.uint32).view(np.float32)
        return np.where(np.isnan(x), x, rounded)
    y = np.empty_like(x)
    for first in range(0, x.shape[-1], 32):
        group = x[..., first : first + 32]
        finite = np.isfinite(group).all(axis=-1, keepdims=True)
        with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
            new = _group8(group) if kind == "q8_0" else _packed_group(group, kind)
            y[..., first : first + 32] = np.where(finite, new, np.float32(np.nan))
    return y


def _group8(group: F32) -> F32:
    largest = np.abs(group).max(axis=-1, keepdims=True)
    scale = np.minimum(largest / np.float32(127), np.float32(65504)).astype(np.float16).astype(np.float32)
    codes = np.rint(group * np.where(scale > 0, np.float32(1) / scale, np.float32(0))) + np.float32(0)
    return np.clip(np.nan_to_num(codes, nan=0), -127, 127) * scale


def _half(x: F32) -> F32:
    return np.clip(x, -65504, 65504).astype(np.float16).astype(np.float32)


def _total(x: F32) -> F32:
    """Sum of 32 values: 16 + 16, 8 + 8..."""
    while x.shape[-1] > 1:
        half = x.shape[-1] // 2
        x = x[..., :half] + x[..., half:]
    return x


def _packed_group(group: F32, kind: str) -> F32:
    """The nearest codes, and the scale of least squares for them, on 32 values of which the missing ones are 0."""
    x = np.zeros((*group.shape[:-1], 32), np.float32)
    x[..., : group.shape[-1]] = np.clip(np.nan_to_num(group, nan=0), -1e30, 1e30)
    most, least = x.max(axis=-1, keepdims=True), x.min(axis=-1, keepdims=True)
    n, none = np.float32(32), np.float32(0)
    low = none
    if kind in ("q4_1", "q5_1"):
        low = least
        top = np.float32(15 if kind == "q4_1" else 31)
        scale = (most - least) / top
    else:
        largest = np.where(most > -least, most, least)
        scale = largest / np.float32({"q4_0": -8, "q5_0": -16, "iq4_nl": -127}[kind])
    codes = x
    near = (x - low) * np.where(scale != 0, np.float32(1) / scale, none)
    if kind == "iq4_nl":
        gaps = np.abs(near[..., None].astype(np.float64) - CODEBOOK)
        codes = CODEBOOK[gaps.argmin(axis=-1)]  # of two equally near ones the lower
    elif kind in ("q4_1", "q5_1"):
        codes = np.clip(np.rint(near), 0, top)
    else:
        half = 8 if kind == "q4_0" else 16
        codes = np.clip(np.rint(near), -half, half - 1)
    above, below = _total(x * codes), _total(codes * codes)
    if kind in ("q4_1", "q5_1"):
        sum_q, sum_x = _total(codes), _total(x)
        above, below = n * above - sum_x * sum_q, n * below - sum_q * sum_q
        scale = _half(np.where(below > 0, above / below, none))
        low = (sum_x - scale * sum_q) / n
    else:
        scale = np.where(below > 0, above / below, none)
    y = (codes + none) * _half(scale)  # codes are integers: 0 has no sign
    if kind in ("q4_1", "q5_1"):
        y = y + _half(low)
    return y[..., : group.shape[-1]]


def read_back(parts: dict[str, np.ndarray], kind: str, width: int) -> F32:
    """Exported planes ("", ".high", ".scale", ".min") [..., element] -> the values [..., width]."""
    codes = parts[""]
    if kind == "bf16":
        return (codes.astype(np.uint32) << 16).view(np.float32)
    x = codes.astype(np.float32)
    if kind in ("q4_0", "q4_1", "q5_0", "q5_1", "iq4_nl"):
        x = np.empty((*codes.shape[:-1], 8 * codes.shape[-1]), np.float32)
        for j in range(8):
            code = (codes >> np.uint32([0, 8, 16, 24, 4, 12, 20, 28][j]) & 15).astype(np.int64)
            if ".high" in parts:
                code += 16 * (parts[".high"].astype(np.int64) >> j & 1)
            if kind in ("q4_0", "q5_0"):
                code -= 8 if kind == "q4_0" else 16
            x[..., j::8] = CODEBOOK[code] if kind == "iq4_nl" else code
        x = x[..., :width]
    if ".scale" in parts:
        x = x * np.repeat(parts[".scale"].astype(np.float32), 32, -1)[..., :width]
    return x + np.repeat(parts[".min"].astype(np.float32), 32, -1)[..., :width] if ".min" in parts else x


def group_codes(parts: dict[str, np.ndarray], kind: str, width: int) -> tuple[F64, F64, F64]:
    """Exported planes -> codes less the middle one [position, head, width], and for each of these its scale and the
    value of the middle code."""
    values = read_back(parts, kind, width).astype(np.float64)
    scale = np.repeat(parts[".scale"].astype(np.float64), 32, -1)[..., :width]
    low = np.zeros_like(values)
    if ".min" in parts:
        low = np.repeat(parts[".min"].astype(np.float64), 32, -1)[..., :width] + (8 if kind == "q4_1" else 16) * scale
    codes = np.rint(np.divide(values - low, scale, out=np.zeros_like(values), where=scale != 0))
    return codes, scale, low


def _to_bytes(x: F64) -> F64:
    """x [..., n] rounded as whole: to multiples of its largest magnitude / 127."""
    most = np.abs(x).max(axis=-1, keepdims=True)
    return np.rint(np.divide(x * 127, most, out=np.zeros_like(x), where=most > 0)) * most / 127


def rounded_attention(q: F64, keys: tuple[F64, F64, F64], values: tuple[F64, F64, F64], scale: float) -> F64:
    """Attention of tokens at positions 0, 1, 2... as infer/kernels/attention/attention_codes.py rounds: queries by
    groups of 32 values; weights times scales by blocks of 64 positions, for each group of 32 values. keys, values: of
    `group_codes`."""
    n, d_head, width = len(q), q.shape[2], values[0].shape[2]
    group, place = q.shape[1] // keys[0].shape[1], np.arange(n)
    out = np.empty((*q.shape[:2], width))
    for h in range(q.shape[1]):
        (kc, ks, kl), (vc, vs, vl) = ([x[:, h // group] for x in side] for side in (keys, values))
        query = q[:, h].astype(np.float64) * scale
        scores = np.zeros((n, n))
        for g in range(0, d_head, 32):
            part = query[:, g : g + 32]
            scores += _to_bytes(part) @ kc[:, g : g + 32].T * ks[:, g] + part.sum(axis=1)[:, None] * kl[:, g]
        scores[place > place[:, None]] = -np.inf
        weights = np.exp(scores - scores.max(axis=1, keepdims=True))
        out[:, h] = weights @ vl
        for first in range(0, n, 64):
            block = slice(first, first + 64)
            for g in range(0, width, 32):
                out[:, h, g : g + 32] += _to_bytes(weights[:, block] * vs[block, g]) @ vc[block, g : g + 32]
        out[:, h] /= weights.sum(axis=1, keepdims=True)
    return out


def hadamard(x: npt.NDArray[np.floating], block: int) -> npt.NDArray[np.floating]:
    """Each block of values of [..., width], transformed by its matrix of +-1 / sqrt(block)."""
    i = np.arange(block)
    signs = 1.0 - 2.0 * (np.bitwise_count(i[:, None] & i) & 1)
    return (x.reshape(*x.shape[:-1], -1, block).astype(np.float64) @ signs / np.sqrt(block)).reshape(x.shape)


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
    bias: F64 | None = None,
) -> F64:
    """q [tok, head, d_head] at positions `pos`; k, v [position, head_kv, width] -> [tok, head, width of v]. sinks:
    [head] or [tok, head], logits that take weight and have no value. aligned: windows begin at multiples of their size.
    bias: [tok, head, position], added to scores."""
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
        if bias is not None:
            scores = scores + bias[:, h]
        scores[~seen] = -np.inf
        sink = np.full((len(q), 1), -np.inf)
        if sinks is not None:
            sink[:, 0] = sinks[..., h]
        top = np.maximum(scores.max(axis=1, keepdims=True), sink)
        weights = np.exp(scores - top)
        out[:, h] = weights @ values / (weights.sum(axis=1, keepdims=True) + np.exp(sink - top))
    return out


def distance_bias(states: F64, profiles: F64, pos: npt.NDArray[np.int64], n: int) -> F64:
    """states [tok, head, profile], profiles [profile, extent] -> [tok, head, position]: 0 beyond the extent."""
    distance = pos[:, None] - np.arange(n)
    extent = profiles.shape[1]
    near = np.asarray(profiles, np.float64)[:, distance.clip(0, extent - 1)]  # [profile, tok, position]
    mixed = np.einsum("thp,ptj->thj", np.asarray(states, np.float64), near)
    return np.where(((distance >= 0) & (distance < extent))[:, None], mixed, 0.0)
