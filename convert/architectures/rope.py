"""RoPE scaling: a config's settings as llama.cpp's keys and constant tensors."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from hybrid.quant.ggml.errors import CheckpointError, UnsupportedError, shown
from hybrid.quant.ggml.families.rope import FREQS, LONG, SHORT

from ..checkpoint import Config
from .family import Keyed, Row

# words of Family.order, also for llama.cpp's architectures that want to know that positions are not stretched
SCALING = "rope_type factor original log_share attn_factor fast slow truncate"
UNSCALED = "rope_type=scaling/unscaled"
KINDS = ("default", "linear", "llama3", "yarn", "longrope")
BETAS = 32.0, 1.0  # of YaRN, where a config does not say; llama.cpp has no others for most architectures


@dataclass(frozen=True, eq=False)
class RopeScaling(Keyed):
    """stated: values of RopeHparams; the tensors, f32 [n_rot / 2], divide the frequencies."""

    stated: Mapping[str, Any] = field(default_factory=dict)
    tensors: tuple[tuple[str, np.ndarray], ...] = ()
    notes: tuple[str, ...] = ()

    def values(self) -> dict[str, Any]:
        return dict(self.stated)

    @property
    def unscaled(self) -> str | None:
        return None if self.stated else "none"

    def rows(self) -> Iterator[Row]:
        """The tensors as rows of the file, computed from the config."""
        for name, values in self.tensors:
            yield Row(name, values.shape, (), constant=values)


NOT_SCALED = RopeScaling()


@dataclass(frozen=True)
class Rotation:
    """Settings that a scaling depends on: RoPE rotates n_rot values of a head, with base `theta`; the model has
    positions up to n_ctx, and had up to `original` before scaling."""

    n_rot: int
    theta: float
    n_ctx: int
    original: int


def original_context(config: Config, rope: Config, n_ctx: int, default: int = 0) -> int:
    """The context length before scaling, as transformers finds it: beside the RoPE object, then in it. `default`: for
    classes that always have the former."""
    name, most = "original_max_position_embeddings", 1 << 30
    inside = default or rope.integer(name, default=n_ctx, minimum=2, maximum=most)
    return config.integer(name, default=inside, minimum=2, maximum=most)


def read_kind(rope: Config) -> str:
    """rope_type in its newer or older spelling."""
    return rope.string("rope_type", "type", default="default").lower()


def read_scaling(
    rope: Config, kind: str, r: Rotation, kinds: Sequence[str] = KINDS, *, reads_yarn: bool = False
) -> RopeScaling:
    """The scaling of type `kind`. UnsupportedError: readers of the family support only `kinds`. reads_yarn: llama.cpp
    reads YaRN's bounds and yarn_log_multiplier in this architecture."""
    if kind not in kinds:
        known = f"{', '.join(kinds[:-1])} and {kinds[-1]}"
        raise UnsupportedError(f"{rope.where}: rope_type = {shown(repr(kind), 60)} is not supported, only {known} are.")
    if kind == "linear":
        return RopeScaling({"rope_type": "linear", "factor": rope.number("factor")})
    if kind == "llama3":
        return RopeScaling(tensors=((FREQS, _llama3_factors(rope, r)),))
    if kind == "yarn":
        return _yarn(rope, r, reads_yarn)
    return _longrope(rope, r) if kind == "longrope" else NOT_SCALED


def read_stretching(config: Config, rope: Config, theta: float, n_rot: int, n_ctx: int) -> RopeScaling:
    """The scaling for a family whose readers use the keys, but no tensors of factors."""
    rotation = Rotation(n_rot, theta, n_ctx, original_context(config, rope, n_ctx))
    return read_scaling(rope, read_kind(rope), rotation, ("default", "linear", "yarn"))


def _llama3_factors(rope: Config, r: Rotation) -> np.ndarray:
    """Llama 3.1's scaling: none for short wavelengths, `factor` for long ones, smooth between. f32 [n_rot / 2]"""
    factor = rope.number("factor", default=8.0)
    low = rope.number("low_freq_factor", default=1.0)
    high = rope.number("high_freq_factor", default=4.0)
    if high < low:
        raise CheckpointError(
            f"{rope.where}: high_freq_factor = {high:g}, expected no less than low_freq_factor = {low:g}."
        )
    turns = r.original / (2 * math.pi * r.theta ** (np.arange(0, r.n_rot, 2) / r.n_rot))
    # equal, as in Llama 4: nothing is between short and long
    smooth = np.clip((turns - low) / (high - low), 0, 1) if high > low else (turns >= low).astype(np.float64)
    return (1 / ((1 - smooth) / factor + smooth)).astype(np.float32)


def _magnitude(factor: float, share: float = 1.0) -> float:
    """YaRN's factor of cos and sin, arXiv:2309.00071, section 3.4."""
    return 1.0 if factor <= 1 else 0.1 * share * math.log(factor) + 1.0


def _yarn(rope: Config, r: Rotation, reads_yarn: bool) -> RopeScaling:
    """YaRN (arXiv:2309.00071). Readers compute the magnitude from the factor; `attn_factor` multiplies it."""
    if r.theta <= 1:
        raise CheckpointError(f"{rope.where}: rope_theta = {r.theta:g}, expected more than 1, with YaRN.")
    factor = rope.number("factor", default=r.n_ctx / r.original)
    share, divisor = (rope.number(key, default=0.0, positive=False) for key in ("mscale", "mscale_all_dim"))
    magnitude = known = _magnitude(factor)
    if share and divisor:
        magnitude = _magnitude(factor, share) / _magnitude(factor, divisor)
    magnitude = rope.number("attention_factor", default=magnitude)
    given = (rope.number(key, default=0.0, positive=False) for key in ("beta_fast", "beta_slow"))
    fast, slow = (beta or usual for beta, usual in zip(given, BETAS, strict=True))
    truncate = rope.boolean("truncate", default=True)
    stated: dict[str, Any] = {"rope_type": "yarn", "factor": factor, "original": r.original}
    if reads_yarn and divisor:
        stated["log_share"] = divisor
        known /= _magnitude(factor, divisor)
    if magnitude != known:
        stated["attn_factor"] = magnitude / known
    if (fast, slow) != BETAS:
        stated |= {"fast": fast, "slow": slow}
    if not truncate:
        stated["truncate"] = False
    unread = {"beta_fast and beta_slow": (fast, slow) != BETAS and not reads_yarn, "truncate": not truncate}
    own = [name for name, differs in unread.items() if differs]
    notes = [f"llama.cpp takes no {' and no '.join(own)} for this architecture: its results differ"] if own else []
    return RopeScaling(stated, notes=tuple(notes))


def _longrope(rope: Config, r: Rotation) -> RopeScaling:
    """LongRoPE (arXiv:2402.13753): two sets of factors, for contexts of up to `original` tokens and for longer ones."""
    short, long = (_factors(rope, key, r.n_rot // 2) for key in ("short_factor", "long_factor"))
    factor = rope.number("factor", default=r.n_ctx / r.original)
    magnitude = math.sqrt(1 + math.log(factor) / math.log(r.original)) if factor > 1 else 1.0
    attn_factor = rope.number("attention_factor", default=magnitude)
    stated = {"rope_type": "longrope", "original": r.original, "attn_factor": attn_factor}
    return RopeScaling(stated, ((LONG, long), (SHORT, short)))


def _factors(rope: Config, key: str, n: int) -> np.ndarray:
    """f32 [n], all different from 0."""
    values = rope.get(key)
    if values is None:
        rope.number(key)  # raises the error for a missing key
    numbers = isinstance(values, list) and all(type(x) in (int, float) and 0 < x < 3e38 for x in values)
    if not numbers or len(values) != n:
        raise rope.wrong(key, f"{n} positive numbers, one for every pair of values that turn")
    return np.asarray(values, np.float32)


def read_sections(rope: Config, usual: Sequence[int]) -> tuple[int, ...]:
    """Numbers of a head's pairs that turn by a picture's time, row and column, in llama.cpp's four places."""
    values = rope.get("mrope_section")
    values = list(usual) if values is None else values
    if not isinstance(values, list) or len(values) > 4 or not all(type(n) is int and n >= 0 for n in values):
        raise rope.wrong("mrope_section", "up to four numbers")
    return (*values, *[0] * (4 - len(values)))
