"""OLMo Hybrid: the gated delta rule, and attention with norms behind its parts on every fourth layer. Of Ai2.

llama.cpp has no such architecture; names and keys are in docs/gguf-extensions.md.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from ..kernels.attention.rope import NEOX
from ..layers.attention import Attention, Rope
from ..layers.base import PostNorm
from ..layers.delta_net import GatedDeltaNet
from ..layers.feed_forward import GatedFeedForward
from ..loading.hparams import key
from ..loading.weights import Weights
from .base import AttentionHparams, Family, Part


@dataclass(frozen=True)
class OlmoHybridHparams(AttentionHparams):
    """A layer without heads of keys has the delta rule: n_ssm_head heads of d_inner / n_ssm_head values, which share
    n_group heads of keys. beta_scale: 2 where its transitions may have negative eigenvalues."""

    n_ff: int = key("feed_forward_length", minimum=1)
    n_rot: int = key("rope.dimension_count", 0)  # 0: no positions
    freq_base: float = key("rope.freq_base", 10000.0, minimum=1)
    d_conv: int = key("ssm.conv_kernel", minimum=2)
    d_inner: int = key("ssm.inner_size", minimum=1)
    d_state: int = key("ssm.state_size", minimum=1)  # width of a head of keys
    n_ssm_head: int = key("ssm.time_step_rank", minimum=1)
    n_group: int = key("ssm.group_count", minimum=1)  # heads of keys
    beta_scale: float = key("ssm.beta_scale", 1.0)
    gated_eps: float = key("ssm.norm_rms_epsilon", 0.0)  # 0: eps


class OlmoHybrid(Family):
    """OLMo Hybrid."""

    name = "olmo-hybrid"
    hparams = OlmoHybridHparams

    def block(self, h: OlmoHybridHparams, i: int, w: Weights) -> Iterator[Part]:
        feed_forward = GatedFeedForward(i, h.n_embd, h.n_ff)
        if not h.n_head_kv[i]:
            if h.d_inner % h.n_ssm_head:
                raise w.wrong("ssm.time_step_rank", h.n_ssm_head, f"a divisor of ssm.inner_size = {h.d_inner}")
            yield "attn_norm.weight", GatedDeltaNet(
                i, h.n_embd, h.n_group, h.n_ssm_head, h.d_state, h.d_inner // h.n_ssm_head, h.d_conv,
                h.gated_eps or h.eps, True, h.beta_scale,
            )  # fmt: skip
            yield "ffn_norm.weight", feed_forward
            return
        attention = Attention(
            i, h.n_embd, h.n_head, h.n_head_kv[i], h.head_size(w),
            Rope(h.n_rot, h.freq_base, NEOX) if h.n_rot else None, norm_eps=h.eps, norm_all=True,
        )  # fmt: skip
        yield "", PostNorm(attention, f"blk.{i}.post_attention_norm.weight", h.n_embd, h.eps)
        yield "", PostNorm(feed_forward, f"blk.{i}.post_ffw_norm.weight", h.n_embd, h.eps)
