"""BERT: attention in both directions, learned positions, a norm after every part. arXiv:1810.04805"""

from collections.abc import Iterator

from hybrid.quant.ggml.families.bert import BertHparams

from ..kernels.rows.gelu import gelu
from ..layers.attention import EncoderAttention
from ..layers.feed_forward import FeedForward
from ..loading.weights import Weights
from .base import EncoderFamily, Part, head_size


class Bert(EncoderFamily):
    """BERT, and RoBERTa, whose files have other rows of positions."""

    name = "bert"
    hparams = BertHparams
    learned_positions = True
    embedding_norm = "token_embd_norm.weight"

    def block(self, h: BertHparams, i: int, w: Weights, n_text: int) -> Iterator[Part]:
        d_head = head_size(h, w)
        yield "attn_output_norm.weight", EncoderAttention(i, h.n_embd, h.n_head, h.n_head, d_head, n_text=n_text)
        yield "layer_output_norm.weight", FeedForward(i, h.n_embd, h.n_ff, act=gelu)
