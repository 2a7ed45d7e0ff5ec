"""Gemma 4 (text): windows on most layers, shared keys and values, embeddings for every layer, experts. Of Google."""

from collections.abc import Iterator

from hybrid.quant.ggml.families.gemma4 import Gemma4Hparams

from ..kernels.attention.rope import NEOX
from ..layers.attention import Attention, Rope
from ..layers.base import Layer, PostNorm
from ..layers.beside_experts import BesideExperts
from ..layers.feed_forward import GatedFeedForward, MixtureOfExperts
from ..layers.per_layer_inputs import PerLayerGate, PerLayerInputs
from ..layers.router import Router
from ..loading.weights import Weights
from .base import Family, Part
from .kv_sharing import sharing_attention
from .rope import rope_of


class Gemma4(Family):
    """Gemma 4."""

    name = "gemma4"
    hparams = Gemma4Hparams
    block_scale = "layer_output_scale.weight"

    def block(self, h: Gemma4Hparams, i: int, w: Weights) -> Iterator[Part]:
        p = f"blk.{i}."
        mixer: Layer = PostNorm(self._attention(h, i, w), p + "post_attention_norm.weight", h.n_embd, h.eps)
        if i == 0 and h.n_per_layer:
            mixer = PerLayerInputs(mixer, h.n_embd, h.n_per_layer, h.n_layer, h.eps)
        yield "attn_norm.weight", mixer
        dense = GatedFeedForward(i, h.n_embd, h.n_ff[i], activation="gelu")
        second: Layer = dense
        norm = "ffn_norm.weight"
        if p + "ffn_gate_inp.weight" in w:
            norm, second = "", BesideExperts(i, h.n_embd, h.eps, dense, self._experts(h, i, w))
        yield norm, PostNorm(second, p + "post_ffw_norm.weight", h.n_embd, h.eps)
        if h.n_per_layer:
            yield "", PerLayerGate(i, h.n_embd, h.n_per_layer, h.eps)

    def _attention(self, h: Gemma4Hparams, i: int, w: Weights) -> Attention:
        if h.local[i]:
            d_head, rope = h.d_head_local, Rope(h.n_rot_local or h.d_head_local, h.freq_base_local, NEOX)
        else:
            d_head, rope = h.d_head, rope_of(h, w, h.n_rot or h.d_head, NEOX)
        return sharing_attention(h, i, w, d_head, rope, tied=f"blk.{i}.attn_v.weight" not in w)

    def _experts(self, h: Gemma4Hparams, i: int, w: Weights) -> MixtureOfExperts:
        return MixtureOfExperts(
            i,
            h.n_embd,
            h.n_ff_expert,
            Router(h.n_expert, h.n_expert_used, renormalize=True),
            activation="gelu",
            fused=f"blk.{i}.ffn_gate_up_exps.weight" in w,
            factors=f"blk.{i}.ffn_down_exps.scale" in w,
        )
