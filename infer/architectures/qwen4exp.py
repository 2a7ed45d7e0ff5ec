"""Qwen3.8-Flash-Next: gated delta rule, indexed attention on every fourth layer, experts and a shared one, gated
residual streams, n-gram embeddings. Of Qwen."""

from collections.abc import Iterator

import numpy as np

from hybrid.quant.ggml.families.qwen4exp import Qwen4ExpHparams

from ..kernels.attention.rope import NEOX
from ..layers.attention import Attention
from ..layers.base import Gate, Layer, Sum
from ..layers.feed_forward import GatedFeedForward, MixtureOfExperts
from ..layers.gated_streams import GatedMixOfStreams, GatedResidual, GatedSizes
from ..layers.head_norm import HeadNorm
from ..layers.indexed_attention import IndexedAttention
from ..layers.ngram_inputs import NgramInputs, Ngrams
from ..layers.router import Router
from ..layers.streams import Streams
from ..loading.weights import Weights
from .base import Family, Part, head_size
from .qwen3next import delta_net
from .rope import rope_of


def sizes_of(h: Qwen4ExpHparams) -> GatedSizes:
    return GatedSizes(h.n_embd, h.n_stream, h.rank, h.eps)


class Qwen4Exp(Family):
    """Qwen3.8-Flash-Next."""

    name = "qwen4exp"
    hparams = Qwen4ExpHparams
    output_norm = ""
    has_heads = True

    def streams(self, h: Qwen4ExpHparams) -> Streams:
        return GatedMixOfStreams(sizes_of(h))

    def head_streams(self, h: Qwen4ExpHparams, i: int, w: Weights) -> Streams:
        return GatedMixOfStreams(sizes_of(h), f"blk.{i}.nextn.hc_head")

    def block(self, h: Qwen4ExpHparams, i: int, w: Weights) -> Iterator[Part]:
        if i in _numbers(w, "layers"):
            yield "", _ngram_inputs(h, i, w)
        attends = f"blk.{i}.attn_q.weight" in w
        ahead = i >= h.n_run
        mixer = _whole_attention(h, i, w) if ahead else _attention(h, i, w) if attends else _delta_net(h, i, w)
        yield "", GatedResidual(mixer, f"blk.{i}.hc_attn", sizes_of(h))
        experts = MixtureOfExperts(i, h.n_embd, h.n_ff_expert, Router(h.n_expert, h.n_expert_used, h.weights_norm))
        shared = GatedFeedForward(i, h.n_embd, h.n_ff_shared, "_shexp", weighted=True)
        yield "", GatedResidual(Sum(experts, shared), f"blk.{i}.hc_ffn", sizes_of(h))


def _attention(h: Qwen4ExpHparams, i: int, w: Weights) -> Layer:
    d_head, every = head_size(h, w, h.d_head), h.every[i]
    if every < 1:
        raise h.wrong(w.gguf, "every", f"a group of tokens on layer {i}, which has attention", every)
    if h.budget < every:
        raise h.wrong(w.gguf, "budget", f"a group of {every} tokens or more")
    return IndexedAttention(
        i, h.n_embd, h.n_head, h.n_head_kv[i], d_head, rope_of(h, w, h.n_rot or d_head, NEOX),
        norm=HeadNorm(h.eps), gate=Gate.VALUES, index_eps=h.eps,
        every=every, n_best=h.budget // every, n_index_head=h.n_index_head, d_index=h.d_index,
    )  # fmt: skip


def _whole_attention(h: Qwen4ExpHparams, i: int, w: Weights) -> Layer:
    """Attention of a head that guesses tokens ahead. It sees all tokens, as its indexer does in texts of up to `budget`
    tokens: the mean of an unfinished group could not be taken back with wrong guesses."""
    w.ignore(*(name for name in w.gguf.tensors if name.startswith(f"blk.{i}.indexer.")))
    d_head = head_size(h, w, h.d_head)
    return Attention(
        i, h.n_embd, h.n_head, h.n_head_kv[i], d_head, rope_of(h, w, h.n_rot or d_head, NEOX),
        norm=HeadNorm(h.eps), gate=Gate.VALUES
    )  # fmt: skip


def _delta_net(h: Qwen4ExpHparams, i: int, w: Weights) -> Layer:
    return delta_net(h, i, w, h.eps, grouped=False, sigmoid_gate=not h.silu_gate)


def _ngram_inputs(h: Qwen4ExpHparams, i: int, w: Weights) -> NgramInputs:
    bounds = {"ple_gram": (2, 64), "ple_each": (1, 1024), "ple_taps": (1, 1024), "d_row": (1, 1 << 16)}
    for name, (least, most) in bounds.items():
        if not least <= getattr(h, name) <= most:
            raise h.wrong(w.gguf, name, f"{least} to {most}, where a layer has n-gram embeddings")
    constants = (_numbers(w, name) for name in ("layer_multipliers", "head_vocab_sizes", "head_offsets"))
    ngrams = Ngrams(h.ple_gram, h.ple_each, h.ple_end, *constants)
    return NgramInputs(i, h.n_embd, h.n_stream, h.d_row, h.ple_taps, h.eps, ngrams)


def _numbers(w: Weights, name: str) -> tuple[int, ...]:
    """A list of 64-bit integers from the file; empty if the file does not have it."""
    values = w.gguf.get(f"qwen4exp.ple.{name}", None)
    if values is None:
        return ()
    if not isinstance(values, np.ndarray) or values.dtype.kind not in "iu":
        raise w.wrong(f"ple.{name}", values, "integers")
    found = tuple(values.tolist())
    if not all(0 <= n < 1 << 63 for n in found):
        raise w.wrong(f"ple.{name}", values, "numbers from 0 to 2^63 - 1")
    return found
