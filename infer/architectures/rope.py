"""RoPE by a file's keys, also scaled to longer contexts. llama.cpp's formulas."""

import math
from dataclasses import replace

import numpy as np

from hybrid.quant.ggml.errors import FormatError, UnsupportedError, shown
from hybrid.quant.ggml.families.rope import FREQS, LONG, SHORT, RopeHparams

from ..kernels.attention.rope_axes import N_AXES, axes_of
from ..layers.attention import MOST_TURNED, Rope
from ..loading.weights import Weights

KINDS = ("none", "linear", "yarn", "longrope")


def rope_of(h: RopeHparams, w: Weights, n_rot: int, style: int) -> Rope:
    """RoPE on n_rot values of a head, scaled by the file's keys. Raises UnsupportedError for an unknown scaling."""
    if h.rope_type not in KINDS:
        name = f"{w.gguf.get('general.architecture')}.rope.scaling.type"
        known = f"{', '.join(KINDS[:-1])} and {KINDS[-1]}"
        raise UnsupportedError(
            f"{w.gguf.path.name}: {name} = {shown(repr(h.rope_type), 60)} is not supported, only {known} are."
        )
    if not h.attn_factor > 0:
        raise h.wrong(w.gguf, "attn_factor", "a positive number")
    rope = Rope(n_rot, h.freq_base, style, magnitude=h.attn_factor)
    # an odd n_rot is refused when the layer is loaded
    if h.rope_type == "yarn":
        rope.factors = _yarn(h, w, n_rot)
        rope.magnitude *= h.magnitude or _magnitude(h.factor) / _magnitude(h.factor, h.log_share)
    elif h.rope_type == "linear" and h.factor:
        rope.freq_scale = 1 / h.factor
    stretch = np.float64(1) if rope.factors is None else rope.factors
    if FREQS in w:
        rope.factors = stretch * _factors(w, FREQS, n_rot)
    elif LONG in w or SHORT in w:
        short, long = (stretch * _factors(w, name, n_rot) for name in (SHORT, LONG))
        rope.factors = long if h.variant(w.gguf.tensors, w.n_ctx) else short
    return rope


def with_axes(rope: Rope, w: Weights, *, interleaved: bool) -> Rope:
    """The rope, with the axis of each pair for pictures if the file has sections: see `axes_of`."""
    name = f"{w.gguf.get('general.architecture')}.rope.dimension_sections"
    if (found := w.gguf.get(name, None)) is None:
        return rope
    sections = np.asarray(found)
    right = sections.dtype.kind in "iu" and sections.ndim == 1 and N_AXES <= len(sections) <= N_AXES + 1
    if not right or sections.min() < 0 or not 0 < sections.sum() <= MOST_TURNED:
        raise w.wrong("rope.dimension_sections", found, f"{N_AXES} or {N_AXES + 1} numbers of pairs")
    if rope.n_rot // 2 > MOST_TURNED:
        return rope  # too many for any head: the layer refuses them
    return replace(rope, axes=axes_of(sections.tolist(), rope.n_rot // 2, interleaved=interleaved))


def _yarn(h: RopeHparams, w: Weights, n_rot: int) -> np.ndarray:
    """YaRN's divisors of the frequencies, f64 [n_rot / 2]: 1 for fast pairs, `factor` for slow ones, a ramp between.
    arXiv:2309.00071, section 3.2"""
    if n_rot > MOST_TURNED:
        raise w.wrong("rope.dimension_count", n_rot, f"at most {MOST_TURNED}")
    if not h.freq_base > 1:
        raise h.wrong(w.gguf, "freq_base", "more than 1, with YaRN")
    for name in ("fast", "slow"):
        if not getattr(h, name) > 0:
            raise h.wrong(w.gguf, name, "a positive number")
    factor, half = h.factor or 1.0, n_rot // 2
    first, last = (
        n_rot * math.log(h.original_ctx / (2 * math.pi * turns)) / (2 * math.log(h.freq_base))
        for turns in (h.fast, h.slow)
    )
    if h.truncate:
        first, last = math.floor(first), math.ceil(last)
    first, last = max(first, 0), min(last, n_rot - 1)
    last += 0.001 * (first == last)
    ramp = np.clip((np.arange(half) - first) / (last - first), 0, 1)
    divisor: np.ndarray = 1 / (ramp / factor + 1 - ramp)
    return divisor


def _magnitude(factor: float, share: float = 1.0) -> float:
    """YaRN's factor on cos and sin."""
    return 1.0 if factor <= 1 else 0.1 * share * math.log(factor) + 1.0


def _factors(w: Weights, name: str, n_rot: int) -> np.ndarray:
    """Divisors of the frequencies from a tensor, f32 [n_rot / 2]."""
    factors = w.array(name, n_rot // 2)
    if not (factors > 0).all():
        raise FormatError(
            f"{w.gguf.path.name}: {name} has values down to {factors.min():g}, expected positive ones. "
            "Convert the model again."
        )
    return factors
