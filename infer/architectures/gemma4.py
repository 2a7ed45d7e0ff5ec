"""Gemma 4 (text): windows on most layers, shared keys and values, embeddings for every layer, experts. Of Google."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from ..kernels.attention.rope import NEOX
from ..layers.attention import Attention, Rope
from ..layers.base import Layer, PostNorm
from ..layers.beside_experts import BesideExperts
from ..layers.feed_forward import GatedFeedForward, MixtureOfExperts
from ..layers.per_layer_inputs import PerLayerGate, PerLayerInputs
from ..layers.shared_keys import BorrowedKeys, NormedValues
from ..loading.hparams import Scales, key
from ..loading.weights import Weights
from .base import AttentionHparams, Family, Part
from .kv_sharing import source_of
from .rope import RopeHparams


@dataclass(frozen=True)
class Gemma4Hparams(RopeHparams, AttentionHparams):
    """`local` layers have a window, heads of d_head_local values and a base of RoPE of their own. The last n_shared
    layers have no keys and values. n_per_layer: values of a token's embedding for each layer, 0: it has none."""

    n_ff: tuple[int, ...] = key("feed_forward_length", per_layer=True, minimum=1)
    d_head: int = key("attention.key_length", minimum=1)
    d_head_local: int = key("attention.key_length_swa", minimum=1)
    window: int = key("attention.sliding_window")
    local: tuple[bool, ...] = key("attention.sliding_window_pattern", pattern=True)
    freq_base_local: float = key("rope.freq_base_swa", 10000.0, minimum=1)
    n_rot: int = key("rope.dimension_count", 0)
    n_rot_local: int = key("rope.dimension_count_swa", 0)
    n_shared: int = key("attention.shared_kv_layers", 0)
    n_per_layer: int = key("embedding_length_per_layer_input", 0)
    n_expert: int = key("expert_count", 0)
    n_expert_used: int = key("expert_used_count", 0)
    n_ff_expert: int = key("expert_feed_forward_length", 0)
    cap: float = key("final_logit_softcapping", 0.0)

    @property
    def scales(self) -> Scales:
        return Scales(embedding=math.sqrt(self.n_embd))

    @property
    def logit_cap(self) -> float:
        return self.cap


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
        source, p = source_of(i, w, h.n_shared, h.local, h.n_head_kv), f"blk.{i}."
        if h.local[i]:
            d_head, rope = h.d_head_local, Rope(h.n_rot_local or h.d_head_local, h.freq_base_local, NEOX)
        else:
            d_head, rope = h.d_head, h.rope(w, h.n_rot or h.d_head, NEOX)
        sizes: dict[str, Any] = {"window": h.window if h.local[i] else 0, "norm_eps": h.eps, "scale": 1.0}
        if source == i:
            sizes["tied"] = p + "attn_v.weight" not in w
            return NormedValues(i, h.n_embd, h.n_head, h.n_head_kv[i], d_head, rope, **sizes)
        # which files may have all the same
        w.ignore(*(f"{p}attn_{part}.weight" for part in ("k", "v", "k_norm")))
        return BorrowedKeys(source, h.n_embd, h.n_head, h.n_head_kv[i], d_head, rope, block=i, **sizes)

    def _experts(self, h: Gemma4Hparams, i: int, w: Weights) -> MixtureOfExperts:
        return MixtureOfExperts(
            i, h.n_embd, h.n_ff_expert, h.n_expert, h.n_expert_used, renormalize=True, activation="gelu",
            fused=f"blk.{i}.ffn_gate_up_exps.weight" in w, factors=f"blk.{i}.ffn_down_exps.scale" in w,
        )  # fmt: skip
