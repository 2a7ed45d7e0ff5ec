"""Qwen3.8-Flash-Next: gated delta rule, indexed attention on every fourth layer, experts beside a shared one, gated
residual streams, n-gram embeddings. Of Qwen."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from ..kernels.attention.rope import NEOX
from ..layers.attention import Attention
from ..layers.base import Layer, Sum
from ..layers.delta_net import GatedDeltaNet
from ..layers.feed_forward import GatedFeedForward, MixtureOfExperts
from ..layers.gated_streams import GatedMixOfStreams, GatedResidual, GatedSizes
from ..layers.indexed_attention import IndexedAttention
from ..layers.ngram_inputs import NgramInputs, Ngrams
from ..layers.streams import Streams
from ..loading.hparams import key
from ..loading.weights import Weights
from .base import Family, Part
from .qwen3next import Qwen3NextHparams


@dataclass(frozen=True)
class Qwen4ExpHparams(Qwen3NextHparams):
    """every: tokens of a group that the indexer scores, of which it chooses `budget` tokens' worth; ple_*: of n-gram
    embeddings, which the layers of ple.layers have."""

    n_stream: int = key("hyper_connection.count", minimum=2)
    rank: int = key("hyper_connection.low_rank", minimum=1)
    n_index_head: int = key("attention.indexer.head_count", minimum=1)
    d_index: int = key("attention.indexer.key_length", minimum=1)
    budget: int = key("attention.indexer.top_k", minimum=1)
    every: tuple[int, ...] = key("attention.compress_ratios", per_layer=True)
    ple_gram: int = key("ple.ngram_size", 0)
    ple_each: int = key("ple.heads_per_ngram", 0)
    ple_taps: int = key("ple.conv_kernel", 0)
    ple_end: int = key("ple.eos_token_id", 0)
    d_row: int = key("embedding_length_per_layer_input", 0)
    silu_gate: bool = key("hybrid.ssm.silu_gate", False)  # of the delta rule, in place of the sigmoid

    @property
    def sizes(self) -> GatedSizes:
        return GatedSizes(self.n_embd, self.n_stream, self.rank, self.eps)


class Qwen4Exp(Family):
    """Qwen3.8-Flash-Next."""

    name = "qwen4exp"
    hparams = Qwen4ExpHparams
    output_norm = ""
    has_heads = True

    def streams(self, h: Qwen4ExpHparams) -> Streams:
        return GatedMixOfStreams(h.sizes)

    def head_streams(self, h: Qwen4ExpHparams, i: int, w: Weights) -> Streams:
        return GatedMixOfStreams(h.sizes, f"blk.{i}.nextn.hc_head")

    def block(self, h: Qwen4ExpHparams, i: int, w: Weights) -> Iterator[Part]:
        if i in _numbers(w, "layers"):
            yield "", _ngram_inputs(h, i, w)
        attends = f"blk.{i}.attn_q.weight" in w
        ahead = i >= h.n_run
        mixer = _whole_attention(h, i, w) if ahead else _attention(h, i, w) if attends else _delta_net(h, i, w)
        yield "", GatedResidual(mixer, f"blk.{i}.hc_attn", h.sizes)
        experts = MixtureOfExperts(i, h.n_embd, h.n_ff_expert, h.n_expert, h.n_expert_used, h.weights_norm)
        shared = GatedFeedForward(i, h.n_embd, h.n_ff_shared, "_shexp", weighted=True)
        yield "", GatedResidual(Sum(experts, shared), f"blk.{i}.hc_ffn", h.sizes)


def _attention(h: Qwen4ExpHparams, i: int, w: Weights) -> Layer:
    d_head, every = h.head_size(w, h.d_head), h.every[i]
    if every < 1:
        raise w.wrong("attention.compress_ratios", every, f"a group of tokens on layer {i}, which has attention")
    if h.budget < every:
        raise w.wrong("attention.indexer.top_k", h.budget, f"a group of {every} tokens or more")
    return IndexedAttention(
        i, h.n_embd, h.n_head, h.n_head_kv[i], d_head, h.rope(w, h.n_rot or d_head, NEOX), norm_eps=h.eps, gated=True,
        every=every, n_best=h.budget // every, n_index_head=h.n_index_head, d_index=h.d_index,
    )  # fmt: skip


def _whole_attention(h: Qwen4ExpHparams, i: int, w: Weights) -> Layer:
    """Of a head that guesses tokens ahead: over all tokens, as with its indexer in texts of up to the budget. The mean
    of an unfinished group could not be taken back with what was guessed."""
    w.ignore(*(name for name in w.gguf.tensors if name.startswith(f"blk.{i}.indexer.")))
    d_head = h.head_size(w, h.d_head)
    return Attention(
        i, h.n_embd, h.n_head, h.n_head_kv[i], d_head, h.rope(w, h.n_rot or d_head, NEOX), norm_eps=h.eps, gated=True
    )  # fmt: skip


def _delta_net(h: Qwen4ExpHparams, i: int, w: Weights) -> Layer:
    if h.d_inner % h.n_ssm_head:
        raise w.wrong("ssm.time_step_rank", h.n_ssm_head, f"a divisor of ssm.inner_size = {h.d_inner}")
    return GatedDeltaNet(
        i, h.n_embd, h.n_group, h.n_ssm_head, h.d_state, h.d_inner // h.n_ssm_head, h.d_conv, h.eps, False,
        sigmoid_gate=not h.silu_gate,
    )  # fmt: skip


def _ngram_inputs(h: Qwen4ExpHparams, i: int, w: Weights) -> NgramInputs:
    for name, value, least, most in (
        ("ple.ngram_size", h.ple_gram, 2, 64), ("ple.heads_per_ngram", h.ple_each, 1, 1024),
        ("ple.conv_kernel", h.ple_taps, 1, 1024), ("embedding_length_per_layer_input", h.d_row, 1, 1 << 16),
    ):  # fmt: skip
        if not least <= value <= most:
            raise w.wrong(name, value, f"{least} to {most}, where a layer has n-gram embeddings")
    constants = (_numbers(w, name) for name in ("layer_multipliers", "head_vocab_sizes", "head_offsets"))
    ngrams = Ngrams(h.ple_gram, h.ple_each, h.ple_end, *constants)
    return NgramInputs(i, h.n_embd, h.n_stream, h.d_row, h.ple_taps, h.eps, ngrams)


def _numbers(w: Weights, name: str) -> tuple[int, ...]:
    """A list of 64-bit integers of the file; empty where it has none."""
    values = w.gguf.get(f"qwen4exp.ple.{name}", None)
    if values is None:
        return ()
    if not isinstance(values, np.ndarray) or values.dtype.kind not in "iu":
        raise w.wrong(f"ple.{name}", values, "integers")
    found = tuple(values.tolist())
    if not all(0 <= n < 1 << 63 for n in found):
        raise w.wrong(f"ple.{name}", values, "numbers from 0 to 2^63 - 1")
    return found
