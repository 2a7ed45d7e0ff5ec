"""RoPE of models in which layers with a window and layers that see all tokens have different settings, and llama.cpp's
keys and tensor for them.

*Proportional* RoPE rotates only the first pairs (i, i + d_head / 2) of a head, with frequencies as if all pairs were
rotated. llama.cpp divides the frequencies by a tensor; for the other pairs its values are so large that they are not
rotated.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from hybrid.quant.ggml.errors import UnsupportedError, shown
from hybrid.quant.ggml.families.rope import FREQS

from ..checkpoint import Config
from .blocks import refuse_scaling
from .family import Keyed, Row
from .rope import NOT_SCALED, RopeScaling, read_kind, read_stretching

NOT_TURNED = 1e30
FULL_BASE, LOCAL_BASE = 1000000.0, 10000.0


@dataclass(frozen=True, eq=False)
class LayerRopes(Keyed):
    """RoPE of both kinds of layers.

    theta        base of layers that see all tokens
    theta_local  base of layers with a window
    factors      f32 [d_head / 2] that divide the frequencies of the former; None: frequencies are unchanged
    scaling      further scaling of the former
    """

    theta: float
    theta_local: float
    factors: np.ndarray | None
    scaling: RopeScaling = NOT_SCALED

    @classmethod
    def read(
        cls, both: Config, d_head: int, usual: float, *, theta: float = FULL_BASE, part: float = 1.0, stretched: int = 0
    ) -> "LayerRopes":
        """`both`: an object per kind of layer; empty: layers that see all tokens rotate the share `usual` of their
        pairs. `d_head` is theirs. theta and part: defaults. stretched: the context length for families whose readers
        scale these layers only (linear, YaRN); 0 for other families. UnsupportedError names an unsupported kind of
        RoPE."""
        if not both.data:
            return cls(FULL_BASE, LOCAL_BASE, proportional(d_head, usual))
        for kind in ("full_attention", "sliding_attention"):
            if kind not in both:
                raise both.wrong(kind, "the settings of RoPE of these layers")
        full, local = both.section("full_attention"), both.section("sliding_attention")
        refuse_scaling(local)
        kind, base = read_kind(full), full.number("rope_theta", default=theta)
        if stretched and kind != "proportional":
            if kind != "default" and full.number("partial_rotary_factor", default=part) != 1:
                raise full.wrong("partial_rotary_factor", f"1, with rope_type = {kind}")
            scaling = read_stretching(full, full, base, d_head, stretched)
            return cls(base, local.number("rope_theta", default=theta), None, scaling)
        if kind not in ("default", "proportional"):
            named = shown(repr(kind), 60)
            raise UnsupportedError(
                f"{full.where}: rope_type = {named} of full_attention is not supported, only default and proportional "
                "are."
            )
        factors = _read_factors(full, d_head, part) if kind == "proportional" else None
        return cls(base, local.number("rope_theta", default=theta), factors)

    def values(self) -> dict[str, Any]:
        return {"freq_base": self.theta, "freq_base_local": self.theta_local, **self.scaling.stated}

    def rows(self) -> Iterator[Row]:
        """The tensor, computed from the config."""
        if self.factors is not None:
            yield Row(FREQS, self.factors.shape, (), constant=self.factors)


ONLY_ROPE_PARAMETERS = dict.fromkeys(
    ("rope_theta", "partial_rotary_factor"), "transformers takes them from rope_parameters alone"
)


def rope_of_kind(config: Config, kind: str, usual: Mapping[str, Any]) -> Config:
    """The settings of RoPE of layers of this kind. `usual`: transformers' rope_parameters where a config has none."""
    keys = ("rope_scaling", "rope_parameters")  # transformers reads both as one, and prefers the older key
    both = config.section(*keys)
    if not both.data:
        both = Config(usual, both.where, both.looked, both.prefixes)
    if kind not in both:
        raise config.wrong(config.named(*keys), f"an object {kind} in it")
    return both.section(kind)


def read_part(rope: Config, d_head: int) -> int:
    """The number of values of a head that RoPE rotates."""
    n_rot = int(d_head * rope.number("partial_rotary_factor", default=1.0))
    if n_rot % 2 or not 0 < n_rot <= d_head:
        raise rope.wrong("partial_rotary_factor", f"an even number of the {d_head} values of a head")
    return n_rot


def _read_factors(rope: Config, d_head: int, usual: float) -> np.ndarray:
    part = rope.number("partial_rotary_factor", default=usual)
    if part > 1:
        raise rope.wrong("partial_rotary_factor", "at most 1")
    return proportional(d_head, part, rope.number("factor", default=1.0))


def proportional(d_head: int, part: float, factor: float = 1.0) -> np.ndarray:
    """Factors: the first `part` of them are `factor`, the others so large that nothing is rotated. f32 [d_head / 2]"""
    n_turned = int(part * d_head // 2)
    return np.where(np.arange(d_head // 2) < n_turned, factor, NOT_TURNED).astype(np.float32)
