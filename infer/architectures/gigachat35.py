"""GigaChat 3.5: gated delta rule, latent attention on every fourth layer, experts, norms with gates around all parts.
Of Sber."""

from collections.abc import Iterator
from typing import Any

from hybrid.quant.ggml.families.gigachat35 import GigaChat35Hparams

from ..layers.base import Gate, Layer, PostNorm
from ..layers.streams import OneStream, Streams
from ..loading.weights import Weights
from .base import Part
from .deepseek2 import DeepSeek2, rope_and_scale
from .latent import clamped_feed_forward, latent_attention
from .qwen3next import delta_net


class GigaChat35(DeepSeek2):
    """GigaChat 3.5."""

    name = "gigachat35"
    hparams = GigaChat35Hparams
    norm_gates = 2.0

    def block(self, h: Any, i: int, w: Weights) -> Iterator[Part]:
        mixer = self.delta(h, i, w) if h.recurrent[i] else self.attention(h, i, w)
        parts = (("attn", "post_attention", mixer), ("ffn", "post_ffw", clamped_feed_forward(h, i, w)))
        for before, after, layer in parts:
            normed = PostNorm(layer, f"blk.{i}.{after}_norm.weight", h.n_embd, h.eps, self.norm_gates)
            yield f"{before}_norm.weight", normed

    def head_streams(self, h: Any, i: int, w: Weights) -> Streams:
        return OneStream(h.n_embd)  # its states are before the last norm

    def delta(self, h: GigaChat35Hparams, i: int, w: Weights) -> Layer:
        """The delta rule of layer i."""
        return delta_net(h, i, w, h.gated_eps or h.eps, grouped=True, sigmoid_gate=True, gate_factor=2.0)

    def attention(self, h: GigaChat35Hparams, i: int, w: Weights) -> Layer:
        rope, scale = rope_and_scale(h, w)
        return latent_attention(h, i, w, rope, gate=Gate.VALUES, scale=scale, gate_factor=self.norm_gates)
