"""Vision towers in float64, patch by patch and from a file's own tensors: slow and obvious. Patches are in raster order
here; features too."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

F64 = np.ndarray
erf = np.vectorize(math.erf)


@dataclass
class TwinFile:
    """A file's tensors, f64, and the tower's keys."""

    tensors: dict[str, F64]
    h: Any

    def norm(self, x: F64, name: str, eps: float) -> F64:
        """Layer norm, or RMS norm where there is no bias."""
        bias = self.tensors.get(f"{name}.bias")
        if bias is not None:
            x = x - x.mean(-1, keepdims=True)
        x = x / np.sqrt((x**2).mean(-1, keepdims=True) + eps) * self.tensors[f"{name}.weight"]
        return x if bias is None else x + bias

    def linear(self, x: F64, name: str) -> F64:
        return x @ self.tensors[f"{name}.weight"].T + self.tensors.get(f"{name}.bias", 0.0)


def gelu_tanh(x: F64) -> F64:
    return 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


def gelu(x: F64) -> F64:
    return 0.5 * x * (1 + erf(x / math.sqrt(2)))


def silu(x: F64) -> F64:
    return x / (1 + np.exp(-x))


def attend(q: F64, k: F64, v: F64, scale: float, seen: Callable[[int, int], bool] = lambda i, j: True) -> F64:
    """q [n, head, d], k and v [m, kv, d]; seen(i, j): whether query i sees key j."""
    out = np.zeros((len(q), q.shape[1], v.shape[2]))
    group = q.shape[1] // k.shape[1]
    for i in range(len(q)):
        keys = [j for j in range(len(k)) if seen(i, j)]
        for head in range(q.shape[1]):
            scores = k[keys, head // group] @ q[i, head] * scale
            weights = np.exp(scores - scores.max())
            out[i, head] = weights / weights.sum() @ v[keys, head // group]
    return out.reshape(len(q), -1)


def turned(x: F64, first: F64, second: F64, base: float) -> F64:
    """x [n, head, d]: of the d / 2 pairs (j, j + d / 2) the first half rotate by `first`, the others by `second`."""
    half = x.shape[2] // 2
    out = x.copy()
    for j in range(half):
        at, place = (j, first) if j < half // 2 else (j - half // 2, second)
        angle = place * base ** (-2 * at / half)
        c, s = np.cos(angle)[:, None], np.sin(angle)[:, None]
        out[..., j] = x[..., j] * c - x[..., j + half] * s
        out[..., j + half] = x[..., j] * s + x[..., j + half] * c
    return out


def beside(x: F64, rows: int, columns: int, m: int) -> F64:
    """The patches of each block of m x m side by side."""
    made = []
    for top in range(0, rows, m):
        for left in range(0, columns, m):
            made.append(np.concatenate([x[(top + i) * columns + left + j] for i in range(m) for j in range(m)]))
    return np.array(made)


def cornered(table: F64, rows: int, columns: int) -> F64:
    """A square table of positions for a grid, bilinear; corners stay corners."""
    side = math.isqrt(len(table))
    out = []
    for r in range(rows):
        for c in range(columns):
            y, x = (i * (side - 1) / max(1, n - 1) for i, n in ((r, rows), (c, columns)))
            total = 0.0
            for i in range(side):
                for j in range(side):
                    total = total + max(0, 1 - abs(y - i)) * max(0, 1 - abs(x - j)) * table[i * side + j]
            out.append(total)
    return np.array(out)


def smoothed(table: F64, rows: int, columns: int) -> F64:
    """A square table of positions for a grid, bilinear; for a smaller grid the triangles are wider."""
    side = math.isqrt(len(table))

    def weights(i: int, n: int) -> F64:
        scale = side / n
        w = np.array([max(0.0, 1 - abs(j + 0.5 - (i + 0.5) * scale) / max(1, scale)) for j in range(side)])
        return w / w.sum()

    grid = table.reshape(side, side, -1)
    places = [(weights(r, rows), weights(c, columns)) for r in range(rows) for c in range(columns)]
    return np.array([np.einsum("y,x,yxn->n", down, across, grid) for down, across in places])


def heads(x: F64, n_head: int) -> F64:
    return x.reshape(len(x), n_head, -1)


# --- families ---
def _qwen_block(f: TwinFile, x: F64, i: int, places: tuple[F64, F64], eps: float, seen: Any) -> F64:
    h, p = f.h, f"v.blk.{i}."
    y = f.norm(x, f"{p}ln1", eps)
    if f"{p}attn_qkv.weight" in f.tensors:
        q, k, v = (heads(part, h.n_head) for part in np.split(f.linear(y, f"{p}attn_qkv"), 3, axis=1))
    else:
        q, k, v = (heads(f.linear(y, f"{p}attn_{part}"), h.n_head) for part in "qkv")
    q, k = (turned(part, *places, h.freq_base) for part in (q, k))
    x = x + f.linear(attend(q, k, v, q.shape[2] ** -0.5, seen), f"{p}attn_out")
    y = f.norm(x, f"{p}ln2", eps)
    if f"{p}ffn_gate.weight" in f.tensors:
        return x + f.linear(silu(f.linear(y, f"{p}ffn_gate")) * f.linear(y, f"{p}ffn_up"), f"{p}ffn_down")
    return x + f.linear(gelu_tanh(f.linear(y, f"{p}ffn_up")), f"{p}ffn_down")


def _frames(f: TwinFile, patches: F64) -> F64:
    """patches [n, channel, frame, y, x]"""
    names = ("v.patch_embd.weight", "v.patch_embd.weight.1")
    total = sum(np.einsum("ncyx,dcyx->nd", patches[:, :, t], f.tensors[name]) for t, name in enumerate(names))
    return total + f.tensors.get("v.patch_embd.bias", 0.0)


def _places(rows: int, columns: int) -> tuple[F64, F64]:
    at = np.arange(rows * columns)
    return at // columns, at % columns


def qwen3_vl(f: TwinFile, patches: F64, rows: int, columns: int) -> list[F64]:
    h, eps, m = f.h, 1e-6, f.h.n_merge
    x = _frames(f, patches) + cornered(f.tensors["v.position_embd.weight"], rows, columns)
    added = []
    for i in range(h.n_layer):
        x = _qwen_block(f, x, i, _places(rows, columns), eps, lambda i, j: True)
        if i < len(h.deepstack) and h.deepstack[i]:
            y = f.norm(beside(x, rows, columns, m), f"v.deepstack.{i}.norm", eps)
            added.append(f.linear(gelu(f.linear(y, f"v.deepstack.{i}.fc1")), f"v.deepstack.{i}.fc2"))
    y = beside(f.norm(x, "v.post_ln", eps), rows, columns, m)
    return [f.linear(gelu(f.linear(y, "mm.0")), "mm.2"), *added]


def qwen25_vl(f: TwinFile, patches: F64, rows: int, columns: int) -> list[F64]:
    h, eps, m = f.h, 1e-6, f.h.n_merge
    side = h.window // (m * h.patch_size) * m
    row, column = _places(rows, columns)
    window = row // side * 1000 + column // side
    x = _frames(f, patches)
    for i in range(h.n_layer):
        full = h.is_full[i]
        x = _qwen_block(f, x, i, (row, column), eps, lambda a, b, full=full: full or window[a] == window[b])
    y = beside(f.norm(x, "v.post_ln", eps), rows, columns, m)
    return [f.linear(gelu(f.linear(y, "mm.0")), "mm.2")]


def siglip(f: TwinFile, patches: F64, positions: F64, until: int | None = None) -> F64:
    """The blocks of SigLIP, before the last norm. patches [n, channel, 1, y, x]"""
    h = f.h
    x = np.einsum("ncyx,dcyx->nd", patches[:, :, 0], f.tensors["v.patch_embd.weight"]) + f.tensors["v.patch_embd.bias"]
    x = x + positions
    for i in range(h.n_layer if until is None else until):
        p = f"v.blk.{i}."
        y = f.norm(x, f"{p}ln1", h.eps)
        q, k, v = (heads(f.linear(y, f"{p}attn_{part}"), h.n_head) for part in "qkv")
        x = x + f.linear(attend(q, k, v, q.shape[2] ** -0.5), f"{p}attn_out")
        x = x + f.linear(gelu_tanh(f.linear(f.norm(x, f"{p}ln2", h.eps), f"{p}ffn_up")), f"{p}ffn_down")
    return x


def smolvlm(f: TwinFile, patches: F64, rows: int, columns: int) -> list[F64]:
    x = siglip(f, patches, f.tensors["v.position_embd.weight"])
    x = f.norm(x, "v.post_ln", f.h.eps)
    return [f.linear(beside(x, rows, columns, f.h.n_merge), "mm.model.fc")]


def lfm2_vl(f: TwinFile, patches: F64, rows: int, columns: int) -> list[F64]:
    x = siglip(f, patches, smoothed(f.tensors["v.position_embd.weight"], rows, columns))
    y = beside(f.norm(x, "v.post_ln", f.h.eps), rows, columns, f.h.n_merge)
    if "mm.input_norm.weight" in f.tensors:
        y = f.norm(y, "mm.input_norm", 1e-5)
    return [f.linear(gelu(f.linear(y, "mm.1")), "mm.2")]


def gemma3_vl(f: TwinFile, patches: F64, rows: int, columns: int) -> list[F64]:
    x = f.norm(siglip(f, patches, f.tensors["v.position_embd.weight"]), "v.post_ln", f.h.eps)
    m = f.h.n_merge or 4
    pooled = beside(x, rows, columns, m).reshape(-1, m * m, x.shape[1]).mean(1)
    y = f.norm(pooled, "mm.soft_emb_norm", f.h.eps)
    return [y @ f.tensors["mm.input_projection.weight"]]


def lfm3_vl(f: TwinFile, patches: F64, rows: int, columns: int) -> list[F64]:
    h, eps, m = f.h, f.h.eps, f.h.n_merge
    places = _places(rows, columns)
    x = f.norm(_frames(f, patches), "v.norm_embd", eps)
    for i in range(h.n_layer):
        p = f"v.blk.{i}."
        y = f.norm(x, f"{p}ln1", eps)
        if h.n_head_kv[i]:
            q = heads(f.linear(y, f"{p}attn_q"), h.n_head)
            k, v = (heads(f.linear(y, f"{p}attn_{part}"), h.n_head_kv[i]) for part in "kv")
            q, k = (turned(f.norm(part, f"{p}attn_{name}_norm", eps), *places, h.freq_base) for part, name in
                    ((q, "q"), (k, "k")))  # fmt: skip
            y = f.linear(attend(q, k, v, q.shape[2] ** -0.5), f"{p}attn_out")
        else:
            before, after, value = np.split(f.linear(y, f"{p}shortconv.in_proj"), 3, axis=1)
            taps, u = f.tensors[f"{p}shortconv.conv.weight"], before * value
            out = np.zeros_like(u)
            for r in range(rows):
                for c in range(columns):
                    for i_, j in np.ndindex(taps.shape[1:]):
                        down, across = r + i_ - taps.shape[1] // 2, c + j - taps.shape[2] // 2
                        if 0 <= down < rows and 0 <= across < columns:
                            out[r * columns + c] += taps[:, i_, j] * u[down * columns + across]
            y = f.linear(after * out, f"{p}shortconv.out_proj")
        x = x + y
        y = f.norm(x, f"{p}ln2", eps)
        x = x + f.linear(silu(f.linear(y, f"{p}ffn_gate")) * f.linear(y, f"{p}ffn_up"), f"{p}ffn_down")
    y = beside(f.norm(x, "mm.input_norm", 1e-6), rows, columns, m)
    return [f.linear(gelu(f.linear(y, "mm.1")), "mm.2")]


def gemma4_vl(f: TwinFile, patches: F64, rows: int, columns: int) -> list[F64]:
    h, eps = f.h, f.h.eps

    def linear(x: F64, name: str) -> F64:
        ends = {"input_min": -math.inf, "input_max": math.inf, "output_min": -math.inf, "output_max": math.inf}
        low, high, least, most = (f.tensors.get(f"{name}.{end}", np.array([other]))[0] for end, other in ends.items())
        return np.minimum(np.maximum(f.linear(np.minimum(np.maximum(x, low), high), name), least), most)

    row, column = _places(rows, columns)
    table = f.tensors["v.position_embd.weight"]
    x = np.einsum("ncyx,dcyx->nd", 2 * (patches[:, :, 0] - 0.5), f.tensors["v.patch_embd.weight"])
    x = x + table[0, column] + table[1, row]
    for i in range(h.n_layer):
        p = f"v.blk.{i}."
        y = f.norm(x, f"{p}ln1", eps)
        q = heads(linear(y, f"{p}attn_q"), h.n_head)
        k, v = (linear(y, f"{p}attn_{part}").reshape(len(y), -1, q.shape[2]) for part in "kv")
        q, k = f.norm(q, f"{p}attn_q_norm", eps), f.norm(k, f"{p}attn_k_norm", eps)
        v = v / np.sqrt((v**2).mean(-1, keepdims=True) + eps)
        q, k = (_halves(part, column, row, h.freq_base) for part in (q, k))
        x = x + f.norm(linear(attend(q, k, v, 1.0), f"{p}attn_out"), f"{p}attn_post_norm", eps)
        y = f.norm(x, f"{p}ln2", eps)
        y = linear(gelu_tanh(linear(y, f"{p}ffn_gate")) * linear(y, f"{p}ffn_up"), f"{p}ffn_down")
        x = x + f.norm(y, f"{p}ffn_post_norm", eps)
    m = h.n_merge
    y = beside(x, rows, columns, m).reshape(-1, m * m, x.shape[1]).mean(1) * math.sqrt(x.shape[1])
    if "v.std_bias" in f.tensors:
        y = (y - f.tensors["v.std_bias"]) * f.tensors["v.std_scale"]
    y = y / np.sqrt((y**2).mean(-1, keepdims=True) + eps)
    return [y @ f.tensors["mm.input_projection.weight"].T]


def _halves(x: F64, first: F64, second: F64, base: float) -> F64:
    """Each half of a head rotates by its own places."""
    out, half = x.copy(), x.shape[2] // 2
    for start, places in ((0, first), (half, second)):
        for j in range(half // 2):
            angle = places * base ** (-2 * j / half)
            c, s = np.cos(angle)[:, None], np.sin(angle)[:, None]
            a, b = x[..., start + j], x[..., start + half // 2 + j]
            out[..., start + j], out[..., start + half // 2 + j] = a * c - b * s, a * s + b * c
    return out


def granite4_vision(f: TwinFile, patches: F64, rows: int, columns: int) -> list[F64]:
    """Features of one tile, in raster order."""
    h, side, n_query = f.h, f.h.window_side, f.h.query_side
    cell, made = side // n_query, []
    for k, (block, offset) in enumerate(zip(h.layers, h.offsets, strict=True)):
        p = f"v.proj_blk.{k}."
        x = f.norm(siglip(f, patches, f.tensors["v.position_embd.weight"], block + 1), f"{p}norm", 1e-6)
        grid = x.reshape(rows, columns, -1)
        out = np.zeros((rows // cell, columns // cell, h.n_out))
        for top in range(0, rows, side):
            for left in range(0, columns, side):
                window = grid[top : top + side, left : left + side]
                asked = []
                for r in range(0, side, cell):
                    for c in range(0, side, cell):
                        part = window[r : r + cell, c : c + cell]
                        asked.append(part.mean((0, 1)) if offset < 0 else part[offset // 2, offset % 2])
                y = np.array(asked) + f.tensors[f"{p}query"].reshape(n_query**2, -1)
                seen = window.reshape(side * side, -1) + f.tensors[f"{p}img_pos"].reshape(side * side, -1)
                y = f.norm(y, f"{p}post_norm", h.eps_projector)
                for part in ("self_attn", "cross_attn"):
                    keys = y if part == "self_attn" else seen
                    n_head = max(1, x.shape[1] // 64)
                    q = heads(f.linear(y, f"{p}{part}_q"), n_head)
                    key, v = (heads(f.linear(keys, f"{p}{part}_{name}"), n_head) for name in "kv")
                    more = f.linear(attend(q, key, v, q.shape[2] ** -0.5), f"{p}{part}_out")
                    y = f.norm(y + more, f"{p}{part}_norm", h.eps_projector)
                more = f.linear(gelu(f.linear(y, f"{p}ffn_up")), f"{p}ffn_down")
                y = f.linear(f.norm(y + more, f"{p}ffn_norm", h.eps_projector), f"{p}linear")
                at = slice(top // cell, top // cell + n_query), slice(left // cell, left // cell + n_query)
                out[at] = y.reshape(n_query, n_query, -1)
        made.append(out.reshape(-1, h.n_out))
    return made


# by clip.projector_type
PASSES: dict[str, Callable[[TwinFile, F64, int, int], list[F64]]] = {
    "qwen3vl_merger": qwen3_vl,
    "qwen2.5vl_merger": qwen25_vl,
    "idefics3": smolvlm,
    "lfm2": lfm2_vl,
    "gemma3": gemma3_vl,
    "lfm3": lfm3_vl,
    "gemma4v": gemma4_vl,
    "granite4_vision": granite4_vision,
}
