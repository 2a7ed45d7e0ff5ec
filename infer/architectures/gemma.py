"""Gemma 1, 2 and 3: in 2 and 3 attention over a window on many layers, norms before and after every part.
arXiv:2403.08295, arXiv:2408.00118, arXiv:2503.19786"""

from collections.abc import Iterator
from typing import Any, ClassVar

from hybrid.quant.ggml.families.gemma import Gemma2Hparams, Gemma3Hparams, GemmaHparams

from ..kernels.attention.rope import NEOX
from ..layers.attention import Attention, Rope
from ..layers.base import Layer, PostNorm
from ..layers.feed_forward import GatedFeedForward
from ..layers.head_norm import HeadNorm
from ..loading.weights import Weights
from .base import Family, Part, head_size
from .llama import Llama
from .rope import rope_of


class Gemma(Llama):
    """The first Gemma: a Llama with GELU in its gates. arXiv:2403.08295"""

    name = "gemma"
    hparams = GemmaHparams
    style = NEOX

    def feed_forward(self, h: Any, i: int, w: Weights) -> Layer:
        return GatedFeedForward(i, h.n_embd, h.n_ff, activation="gelu")


class Gemma2(Family):
    """Gemma 2: local and global layers alternate, unless the file says otherwise."""

    name: ClassVar[str] = "gemma2"
    hparams: ClassVar[type[Any]] = Gemma2Hparams
    normed: ClassVar[bool] = False  # norms on queries and keys
    all_scaled: ClassVar[bool] = True  # RoPE is scaled on local layers also
    together: ClassVar[bool] = False  # the tokens of a picture see each other
    n_layer_27b: ClassVar[int] = 46  # layers of the size whose scores are scaled by the model's width, as in llama.cpp

    def block(self, h: Gemma2Hparams, i: int, w: Weights) -> Iterator[Part]:
        d_head = head_size(h, w, h.d_head)
        local = h.window > 0 and h.local[i]
        rope = rope_of(h, w, d_head, NEOX) if self.all_scaled or not local else Rope(d_head, h.freq_base, NEOX)
        rope.freq_base = (h.freq_base_local if local else 0.0) or h.freq_base
        width = h.n_embd // h.n_head if h.n_layer == self.n_layer_27b else d_head
        attention = Attention(
            i, h.n_embd, h.n_head, h.n_head_kv[i], d_head, rope, h.attention_scale or width**-0.5,
            h.window if local else 0, h.attention_cap, HeadNorm(h.eps) if self.normed else None,
            together=self.together,
        )  # fmt: skip
        yield from parts_around(h, i, attention)


class VaultGemma(Gemma2):
    """VaultGemma: Gemma 2 without norms after the parts of a block. arXiv:2510.15001"""

    name = "vaultgemma"

    def block(self, h: Gemma2Hparams, i: int, w: Weights) -> Iterator[Part]:
        for norm, layer in super().block(h, i, w):
            assert isinstance(layer, PostNorm)
            yield norm, layer.layer


class Gemma3(Gemma2):
    """Gemma 3, its text part: five local layers before each global one, norms on queries and keys."""

    name = "gemma3"
    hparams: ClassVar[type[Any]] = Gemma3Hparams
    normed = True
    all_scaled = False
    together = True
    n_layer_27b = 62


def parts_around(h: Gemma2Hparams, i: int, attention: Layer) -> Iterator[Part]:
    """The attention of a block, or another mixer, and its second part, with norms after them."""
    p = f"blk.{i}."
    yield "attn_norm.weight", PostNorm(attention, p + "post_attention_norm.weight", h.n_embd, h.eps)
    feed_forward = GatedFeedForward(i, h.n_embd, h.n_ff, activation="gelu")
    yield "ffn_norm.weight", PostNorm(feed_forward, p + "post_ffw_norm.weight", h.n_embd, h.eps)
