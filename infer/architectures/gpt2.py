"""GPT-2 (OpenAI 2019): learned positions, layer norms with biases, no gates."""

from collections.abc import Iterator
from typing import Any, ClassVar

from hybrid.quant.ggml.families.gpt2 import Gpt2Hparams

from ..kernels.rows.gelu import gelu_tanh
from ..layers.attention import Attention
from ..layers.feed_forward import FeedForward
from ..loading.weights import Weights
from .base import Family, Part, head_size


class Gpt2(Family):
    """GPT-2: positions are added to the embedding; queries, keys and values are one matrix."""

    name = "gpt2"
    hparams: ClassVar[type[Any]] = Gpt2Hparams
    layer_norms = True
    learned_positions = True

    def block(self, h: Gpt2Hparams, i: int, w: Weights) -> Iterator[Part]:
        yield "attn_norm.weight", Attention(i, h.n_embd, h.n_head, h.n_head, head_size(h, w), fused=True)
        yield "ffn_norm.weight", FeedForward(i, h.n_embd, h.n_ff, act=gelu_tanh)
