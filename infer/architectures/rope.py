"""The keys of rotary positions, and of the ways to stretch them to longer contexts, of every architecture that has
them. llama.cpp's keys and formulas; docs/gguf-extensions.md has the one key that is ours."""

import math
from collections.abc import Container
from dataclasses import dataclass

import numpy as np

from hybrid.quant.ggml.errors import FormatError, UnsupportedError, shown

from ..layers.attention import MOST_TURNED, Rope
from ..loading.hparams import Hparams, key
from ..loading.weights import Weights

KINDS = ("none", "linear", "yarn", "longrope")
FREQS, LONG, SHORT = "rope_freqs.weight", "rope_factors_long.weight", "rope_factors_short.weight"


@dataclass(frozen=True)
class RopeHparams(Hparams):
    """Of a model whose queries and keys turn.

    factor      positions are divided by it (linear), or those of slow pairs (YaRN); 0, as in llama.cpp: none
    original    the context that the model had before; 0: it still has it
    attention   cos and sin are times it
    magnitude   YaRN's own factor of both; 0: as it follows from `factor` and from `log_share`
    fast, slow  YaRN: pairs that turn more often than `fast` times in the original context stay, those that turn less
                often than `slow` times are stretched
    truncate    YaRN: these bounds are those of whole pairs
    """

    freq_base: float = key("rope.freq_base", 10000.0, minimum=1)
    scaling: str = key("rope.scaling.type", "linear")
    factor: float = key("rope.scaling.factor", 1.0)
    original: int = key("rope.scaling.original_context_length", 0)
    attention: float = key("rope.scaling.attn_factor", 1.0)
    magnitude: float = key("rope.scaling.yarn_attn_factor", 0.0)
    log_share: float = key("rope.scaling.yarn_log_multiplier", 0.0)
    fast: float = key("rope.scaling.yarn_beta_fast", 32.0)
    slow: float = key("rope.scaling.yarn_beta_slow", 1.0)
    truncate: bool = key("hybrid.rope.scaling.truncate", True)

    @property
    def original_ctx(self) -> int:
        """The context before it was stretched."""
        return self.original or self.n_ctx_train

    def variant(self, tensors: Container[str], n_ctx: int) -> str:
        """Of two sets of frequencies the context of the loaded model chooses, never the length of a text: keys stay as
        they were turned."""
        return "long RoPE" if LONG in tensors and n_ctx > self.original_ctx else ""

    def usual_context(self, tensors: Container[str]) -> int:
        """With two sets of frequencies, as long as the first of them counts: a longer context, which changes the
        results of short texts too, is for who asks for it."""
        return min(self.n_ctx_train, self.original_ctx) if LONG in tensors else self.n_ctx_train

    def rope(self, w: Weights, n_rot: int, style: int) -> Rope:
        """How n_rot values of a head turn, scaled as the file says. UnsupportedError names a scaling without code."""
        if self.scaling not in KINDS:
            name = f"{w.gguf.get('general.architecture')}.rope.scaling.type"
            known = f"{', '.join(KINDS[:-1])} and {KINDS[-1]}"
            raise UnsupportedError(
                f"{w.gguf.path.name}: {name} = {shown(repr(self.scaling), 60)} is not supported, only {known} are."
            )
        if not self.attention > 0:
            raise w.wrong("rope.scaling.attn_factor", self.attention, "a positive number")
        rope = Rope(n_rot, self.freq_base, style, magnitude=self.attention)
        # an odd n_rot is refused where the layer is loaded, by another key
        if self.scaling == "yarn":
            rope.factors = self._yarn(w, n_rot)
            rope.magnitude *= self.magnitude or _magnitude(self.factor) / _magnitude(self.factor, self.log_share)
        elif self.scaling == "linear" and self.factor:
            rope.freq_scale = 1 / self.factor
        stretch = np.float64(1) if rope.factors is None else rope.factors
        if FREQS in w:
            rope.factors = stretch * _factors(w, FREQS, n_rot)
        elif LONG in w or SHORT in w:
            short, long = (stretch * _factors(w, name, n_rot) for name in (SHORT, LONG))
            rope.factors = long if self.variant(w.gguf.tensors, w.n_ctx) else short
        return rope

    def _yarn(self, w: Weights, n_rot: int) -> np.ndarray:
        """What YaRN divides the frequencies by: 1 for pairs that turn often, `factor` for slow ones, a ramp between.
        f64 [n_rot / 2]. arXiv:2309.00071, section 3.2"""
        if n_rot > MOST_TURNED:
            raise w.wrong("rope.dimension_count", n_rot, f"at most {MOST_TURNED}")
        if not self.freq_base > 1:
            raise w.wrong("rope.freq_base", self.freq_base, "more than 1, with YaRN")
        for name, turns in (("fast", self.fast), ("slow", self.slow)):
            if not turns > 0:
                raise w.wrong(f"rope.scaling.yarn_beta_{name}", turns, "a positive number")
        factor, half = self.factor or 1.0, n_rot // 2
        first, last = (
            n_rot * math.log(self.original_ctx / (2 * math.pi * turns)) / (2 * math.log(self.freq_base))
            for turns in (self.fast, self.slow)
        )
        if self.truncate:
            first, last = math.floor(first), math.ceil(last)
        first, last = max(first, 0), min(last, n_rot - 1)
        last += 0.001 * (first == last)
        ramp = np.clip((np.arange(half) - first) / (last - first), 0, 1)
        return 1 / (ramp / factor + 1 - ramp)


def _magnitude(factor: float, share: float = 1.0) -> float:
    """YaRN's factor of cos and sin."""
    return 1.0 if factor <= 1 else 0.1 * share * math.log(factor) + 1.0


def _factors(w: Weights, name: str, n_rot: int) -> np.ndarray:
    """What the frequencies are divided by, which the converter stores as a tensor. f32 [n_rot / 2]"""
    factors = w.array(name, n_rot // 2)
    if not (factors > 0).all():
        raise FormatError(
            f"{w.gguf.path.name}: {name} has values down to {factors.min():g}, expected positive ones. "
            "Convert the model again."
        )
    return factors
