"""Qwen3-Next: gated delta rule, gated attention on every fourth layer, experts and a shared one. Of Qwen."""

from collections.abc import Iterator
from typing import Any, ClassVar

from hybrid.quant.ggml.families.mamba2 import SsmHparams
from hybrid.quant.ggml.families.qwen3next import Qwen3NextHparams

from ..kernels.attention.rope import NEOX
from ..layers.attention import Attention
from ..layers.base import Gate, Layer, Sum
from ..layers.delta_net import GatedDeltaNet
from ..layers.feed_forward import GatedFeedForward, MixtureOfExperts
from ..layers.head_norm import HeadNorm
from ..layers.router import Router
from ..loading.weights import Weights
from .base import Family, Part, head_size
from .rope import rope_of, with_axes


def delta_net(h: SsmHparams, i: int, w: Weights, eps: float, **more: Any) -> GatedDeltaNet:
    """The gated delta rule as layer i. more: fields of GatedDeltaNet."""
    if h.d_inner % h.n_ssm_head:
        raise h.wrong(w.gguf, "n_ssm_head", f"a divisor of ssm.inner_size = {h.d_inner}")
    sizes = (h.n_embd, h.n_group, h.n_ssm_head, h.d_state, h.d_inner // h.n_ssm_head, h.d_conv)
    return GatedDeltaNet(i, *sizes, eps, **more)


def gated_attention(h: Any, i: int, w: Weights, *, axes: bool = False) -> Attention:
    """Attention with norms of heads and a gate of values as layer i. axes: of positions of pictures' tokens."""
    d_head = head_size(h, w, h.d_head)
    rope = rope_of(h, w, h.n_rot or d_head, NEOX)
    if axes:
        rope = with_axes(rope, w, interleaved=True)
    return Attention(
        i, h.n_embd, h.n_head, h.n_head_kv[i], d_head, rope, norm=HeadNorm(h.eps), gate=Gate.VALUES
    )  # fmt: skip


def shared_experts(h: Any, i: int, n_ff: int, n_ff_shared: int, bank: int | None = None, **more: Any) -> Layer:
    """Experts of width n_ff, and one for every token, which has a gate. bank: the layer that has the tensors of the
    experts; None: this one. more: fields of Router."""
    router = Router(h.n_expert, h.n_expert_used, h.weights_norm, **more)
    experts = MixtureOfExperts(i if bank is None else bank, h.n_embd, n_ff, router)
    return Sum(experts, GatedFeedForward(i, h.n_embd, n_ff_shared, "_shexp", weighted=True))


class Qwen3Next(Family):
    """Qwen3-Next."""

    name = "qwen3next"
    hparams: ClassVar[type[Any]] = Qwen3NextHparams
    has_heads = True
    grouped = True  # heads of the delta rule that share keys are adjacent
    sees_pictures = False  # whether their tokens have positions on three axes

    def block(self, h: Qwen3NextHparams, i: int, w: Weights) -> Iterator[Part]:
        # tensors tell the kind of a layer: the keys for it (two in llama.cpp) are optional
        if f"blk.{i}.attn_q.weight" in w:
            yield "attn_norm.weight", gated_attention(h, i, w, axes=self.sees_pictures)
        else:
            yield "attn_norm.weight", delta_net(h, i, w, h.eps, grouped=self.grouped)
        yield "post_attention_norm.weight", self.feed_forward(h, i, w)

    def feed_forward(self, h: Any, i: int, w: Weights) -> Layer:
        """The feed-forward part of layer i."""
        if f"blk.{i}.ffn_gate_inp.weight" not in w:
            return GatedFeedForward(i, h.n_embd, h.n_ff)
        n_ff = h.n_ff_expert or h.n_ff // max(1, h.n_expert_used)
        return shared_experts(h, i, n_ff, h.n_ff_shared or h.n_ff)
