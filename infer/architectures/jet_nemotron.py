"""Jet-Nemotron: the delta rule with a dynamic convolution, attention over a window and over all tokens.
arXiv:2508.15884

llama.cpp has no such architecture; names and keys are in docs/gguf-extensions.md.
"""

from collections.abc import Iterator

from hybrid.quant.ggml.families.jet_nemotron import JetNemotronHparams

from ..kernels.attention.rope import NEOX
from ..layers.attention import Attention
from ..layers.feed_forward import GatedFeedForward
from ..layers.jet_block import JetBlock
from ..loading.weights import Weights
from .base import Family, Part
from .rope import rope_of


class JetNemotron(Family):
    """Jet-Nemotron."""

    name = "jet-nemotron"
    hparams = JetNemotronHparams

    def block(self, h: JetNemotronHparams, i: int, w: Weights) -> Iterator[Part]:
        if h.n_head_kv[i]:
            rope, window = rope_of(h, w, h.d_head, NEOX), h.window if h.local[i] else 0
            mixer = Attention(i, h.n_embd, h.n_head, h.n_head_kv[i], h.d_head, rope, window=window)
            yield "attn_norm.weight", mixer
        else:
            if h.d_inner % h.n_ssm_head:
                raise h.wrong(w.gguf, "n_ssm_head", f"a divisor of ssm.inner_size = {h.d_inner}")
            sizes = (h.n_embd, h.n_group, h.n_ssm_head, h.d_state, h.d_inner // h.n_ssm_head, h.d_conv)
            yield "attn_norm.weight", JetBlock(i, *sizes, h.gated_eps, grouped=True, n_taps=h.n_taps)
        yield "ffn_norm.weight", GatedFeedForward(i, h.n_embd, h.n_ff)
