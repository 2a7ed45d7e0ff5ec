"""Granite 4 H: Mamba-2 and some attention, dense or with experts beside a shared one. Of ibm-granite."""

from collections.abc import Iterator
from dataclasses import dataclass

from ..hparams import Hparams, Scales, key
from ..layers import Attention, GatedFeedForward, Mamba2, MixtureOfExperts, Rope, WithSharedExpert
from ..weights import Weights
from .base import Part


@dataclass(frozen=True)
class GraniteHybridHparams(Hparams):
    n_ff: int = key("feed_forward_length", minimum=1)
    n_head: int = key("attention.head_count", minimum=1)
    n_head_kv: tuple[int, ...] = key("attention.head_count_kv", per_layer=True)  # 0 marks a Mamba-2 layer
    d_conv: int = key("ssm.conv_kernel", minimum=2)
    d_inner: int = key("ssm.inner_size", minimum=1)
    d_state: int = key("ssm.state_size", minimum=1)
    n_ssm_head: int = key("ssm.time_step_rank", minimum=1)
    n_group: int = key("ssm.group_count", minimum=1)
    eps: float = key("attention.layer_norm_rms_epsilon")
    n_expert: int = key("expert_count", 0)
    n_expert_used: int = key("expert_used_count", 0)
    n_ff_shared: int = key("expert_shared_feed_forward_length", 0)
    # of these, 0 stands for "none", as in llama.cpp
    embedding_scale: float = key("embedding_scale", 0.0)
    residual_scale: float = key("residual_scale", 0.0)
    logit_scale: float = key("logit_scale", 0.0)
    attention_scale: float = key("attention.scale", 0.0)
    uses_rope: bool = key("rope.scaling.finetuned", True)  # llama.cpp took a key that was there
    freq_base: float = key("rope.freq_base", 10000.0, minimum=1)
    n_rot: int = key("rope.dimension_count", 0)

    @property
    def scales(self) -> Scales:
        return Scales(self.embedding_scale or 1.0, self.residual_scale or 1.0, self.logit_scale or 1.0)


class GraniteHybrid:
    name = "granitehybrid"
    hparams = GraniteHybridHparams

    def block(self, h: GraniteHybridHparams, i: int, w: Weights) -> Iterator[Part]:
        if h.n_head_kv[i]:
            if h.n_embd % h.n_head:
                raise w.wrong("attention.head_count", h.n_head, f"a divisor of embedding_length = {h.n_embd}")
            d_head = h.n_embd // h.n_head
            rope = Rope(h.n_rot or d_head, h.freq_base) if h.uses_rope else None
            yield "attn_norm", Attention(i, h.n_embd, h.n_head, h.n_head_kv[i], d_head, rope, h.attention_scale)
        else:
            yield "attn_norm", Mamba2(i, h.n_embd, h.d_inner, h.d_state, h.d_conv, h.n_ssm_head, h.n_group, h.eps)
        if not h.n_expert:
            yield "ffn_norm", GatedFeedForward(i, h.n_embd, h.n_ff)
            return
        experts = MixtureOfExperts(i, h.n_embd, h.n_ff, h.n_expert, h.n_expert_used, renormalize=True)
        if h.n_ff_shared:
            yield "ffn_norm", WithSharedExpert(experts, GatedFeedForward(i, h.n_embd, h.n_ff_shared, "_shexp"))
        else:
            yield "ffn_norm", experts

    def eps(self, h: GraniteHybridHparams) -> float:
        return h.eps
