"""Mamba-2: state space duality layers only. arXiv:2405.21060. Also the original checkpoints of state-spaces, whose
config names no architecture and has the layer's sizes in `ssm_cfg`, and Codestral-Mamba."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Self

from hybrid.quant.ggml.families.mamba2 import Mamba2Hparams

from ..checkpoint import Config
from ..transforms import NEGATIVE_EXP, Transform
from .blocks import conv1d, no_ssm_biases
from .family import Keyed, Row, Shapes, row
from .mamba import MAMBA_SIZES, StateSpaces
from .unused_fields import NO_POSITIONS, STATE_SPACES, STEP_SIZES

SSM = "d_conv d_inner d_state n_ssm_head n_group dt_min? dt_max?"  # words of Family.order
NO_LIMITS = (0.0, math.inf)  # of step sizes


@dataclass(frozen=True)
class Ssm(Keyed):
    """Sizes of a Mamba-2 layer; `n_ssm_head` heads share `n_group` groups of B and C; step sizes stay within `limits`.

    bias_in, bias_out: of the projections.
    """

    d_conv: int
    d_inner: int
    d_state: int
    n_ssm_head: int
    n_group: int
    conv_bias: bool
    bias_in: bool
    bias_out: bool
    limits: tuple[float, float]

    @classmethod
    def read(cls, config: Config, n_embd: int, d_inner: int = 0, *, n_group: int = 1) -> Self:
        """Reads the keys of Mamba-2's own configs, of state-spaces' `ssm_cfg`, and of hybrids, with the prefix
        `mamba_`. `d_inner`: if it does not follow from n_embd; `n_group`: default."""
        expanded = config.integer("mamba_expand", "expand", default=2) * n_embd
        d_inner = d_inner or config.integer("mamba_d_ssm", "d_inner", default=expanded)
        heads = ("mamba_n_heads", "mamba_num_heads", "n_mamba_heads", "num_heads")
        widths = ("mamba_d_head", "mamba_head_dim", "mamba_headdim", "head_dim", "headdim")
        d_head = 0 if config.get(*widths) == "auto" else config.integer(*widths, default=64)
        n_head = config.integer(*heads, default=max(1, d_inner // d_head)) if d_head else config.integer(*heads)
        d_head = d_head or d_inner // n_head
        if n_head * d_head != d_inner:
            named = [key for key in (*heads, *widths, "hidden_size", "d_model", "dim") if key in config]
            raise config.wrong(named[0], f"{d_inner} channels of a layer in heads of {d_head}, as its other keys say")
        groups = ("mamba_n_groups", "mamba_ngroups", "n_groups", "ngroups")
        n_group = config.integer(*groups, default=n_group)
        if n_head % n_group:
            named = [key for key in (*groups, *heads, *widths, "hidden_size", "d_model", "dim") if key in config]
            raise config.wrong(named[0], f"a divisor of the {n_head} heads")
        bias = config.boolean("mamba_proj_bias", "use_bias", "bias", default=False)
        return cls(
            d_conv=config.integer("mamba_d_conv", "conv_kernel", "d_conv", default=4, minimum=2),
            d_inner=d_inner,
            d_state=config.integer("mamba_d_state", "ssm_state_size", "state_size", "d_state", default=128),
            n_ssm_head=n_head,
            n_group=n_group,
            conv_bias=config.boolean("mamba_conv_bias", "use_conv_bias", "conv_bias", default=True),
            bias_in=bias,
            bias_out=bias,
            limits=_limits(config),
        )

    def values(self) -> dict[str, Any]:
        dt_min, dt_max = self.limits
        return {**vars(self), "dt_min": dt_min, "dt_max": dt_max if dt_max < math.inf else 0.0}

    def notes(self) -> Iterator[str]:
        """Notes on what llama.cpp cannot load or does not do."""
        yield from no_ssm_biases(self.bias_in, self.bias_out)
        if self.limits != NO_LIMITS:
            low, high = self.limits
            yield f"llama.cpp does not keep step sizes within {low:g} and {high:g}: its results differ where they leave"

    @property
    def parts(self) -> tuple[int, ...]:
        """Rows of in_proj: z, x, B, C, dt."""
        groups = self.n_group * self.d_state
        return self.d_inner, self.d_inner, groups, groups, self.n_ssm_head

    def rows(
        self,
        hf: str,
        blk: str,
        n_embd: int,
        *,
        normed: bool = True,
        into: Transform | None = None,
        into_bias: Transform | None = None,
        out: Transform | None = None,
    ) -> Iterator[Row]:
        """`into`, `into_bias` and `out` are applied to the projections and their biases."""
        mixed = self.d_inner + 2 * self.n_group * self.d_state
        yield row(hf + "in_proj.weight", blk + "ssm_in.weight", sum(self.parts), n_embd, transform=into)
        if self.bias_in:
            yield row(hf + "in_proj.bias", blk + "ssm_in.bias", sum(self.parts), transform=into_bias)
        yield from conv1d(hf, blk, mixed, self.d_conv, bias=self.conv_bias)
        yield row(hf + "dt_bias", blk + "ssm_dt.bias", self.n_ssm_head)
        per_head: dict[str, Any] = {"source_shape": (self.n_ssm_head,)}
        yield row(hf + "A_log", blk + "ssm_a", self.n_ssm_head, 1, transform=NEGATIVE_EXP, **per_head)
        yield row(hf + "D", blk + "ssm_d", self.n_ssm_head, 1, **per_head)
        group = self.d_inner // self.n_group
        if normed:
            yield row(hf + "norm.weight", blk + "ssm_norm.weight", self.n_group, group, source_shape=(self.d_inner,))
        yield row(hf + "out_proj.weight", blk + "ssm_out.weight", n_embd, self.d_inner, transform=out)
        if self.bias_out:
            yield row(hf + "out_proj.bias", blk + "ssm_out.bias", n_embd, transform=out)


def _limits(config: Config) -> tuple[float, float]:
    """Limits of the step size."""
    keys = ("time_step_limit", "dt_limit", "mamba_dt_limit")
    key, limits = config.named(*keys), config.get(*keys)
    if limits is None:
        return NO_LIMITS
    expected = "two numbers, a least step size and one above it, or Infinity"
    if not isinstance(limits, list) or len(limits) != 2:
        raise config.wrong(key, expected)
    both = [Config({key: value}, config.where) for value in limits]
    low = both[0].number(key, positive=False)
    high = math.inf if both[1].get(key) == math.inf else both[1].number(key)
    if low >= high:
        raise config.wrong(key, expected)
    return max(low, 0.0), high


@dataclass(frozen=True)
class Mamba2(StateSpaces):
    """One model."""

    arch = "mamba2"
    architectures = ("Mamba2ForCausalLM",)
    hparams = Mamba2Hparams
    order = f"{MAMBA_SIZES} {SSM} eps .general.file_type"
    widths: ClassVar[tuple[str, ...]] = ("hidden_size", "d_model", "dim")
    layer, multiple = ("Mamba2",), 16
    without_effect: ClassVar[Mapping[str, str]] = {
        **NO_POSITIONS,
        **STEP_SIZES,
        **STATE_SPACES,
        "norm_before_gate": "transformers' model does not read it",
        "time_step_rank": "of Mamba-1: here the step sizes are rows of in_proj",
    }

    ssm: Ssm

    @classmethod
    def read(cls, config: Config, shapes: Shapes) -> Self:
        original = "model_type" not in config  # by state-spaces, whose defaults differ from transformers'
        if original:  # Codestral-Mamba's config also has it, but its model does not read it
            config.expects("norm_before_gate", False)
        ssm = config.section("ssm_cfg")
        ssm.expects("rmsnorm", True)
        ssm.expects("norm_before_gate", False)
        merged, sizes = cls.sizes(config, shapes, tied=original)
        return cls(**sizes, ssm=Ssm.read(merged, sizes["n_embd"], n_group=1 if original else 8))

    def notes(self) -> Iterator[str]:
        yield from self.ssm.notes()

    def canonical(self, name: str) -> str:
        name = name.removeprefix("model.") if name.startswith(("model.backbone.", "model.lm_head.")) else name
        return super().canonical(name)

    def mixer(self, hf: str, blk: str) -> Iterator[Row]:
        return self.ssm.rows(hf, blk, self.n_embd)
