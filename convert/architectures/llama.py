"""Llama and Mistral: attention with RoPE and a gated feed-forward part on every layer. arXiv:2302.13971"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from hybrid.quant.ggml.errors import UnsupportedError
from hybrid.quant.ggml.types import FileType

from ..checkpoint import Config
from ..transforms import interleave_rope
from .family import Family, Row, Shapes, row, vocabulary_rows


@dataclass(frozen=True)
class Llama(Family):
    arch = "llama"
    architectures = ("LlamaForCausalLM", "LLaMAForCausalLM", "MistralForCausalLM")
    pre = ("llama-bpe",)

    n_vocab: int
    tied: bool
    n_layer: int
    n_ctx: int
    n_embd: int
    n_ff: int
    n_head: int
    n_head_kv: int
    d_head: int
    d_head_stated: bool  # the config has head_dim
    eps: float
    rope_theta: float
    rope_keys: tuple[tuple[str, Any], ...]  # of a scaling that llama.cpp computes from keys
    rope_factors: np.ndarray | None  # f32 [d_head / 2]: divides the frequencies (Llama 3)
    attention_bias: bool
    mlp_bias: bool
    window: int  # attention reaches so far back; 0 = to the beginning

    @classmethod
    def read(cls, config: Config, shapes: Shapes) -> Self:
        config.expects("hidden_act", "silu")
        n_embd = config.integer("hidden_size")
        n_head = config.integer("num_attention_heads")
        n_head_kv = config.integer("num_key_value_heads", default=n_head)
        if n_head % n_head_kv:
            raise config.wrong("num_key_value_heads", f"a divisor of the {n_head} attention heads")
        if "head_dim" not in config and n_embd % n_head:
            raise config.wrong("num_attention_heads", f"a divisor of the hidden size {n_embd}")
        d_head = config.integer("head_dim", default=n_embd // n_head, maximum=1 << 16)
        if d_head % 2:
            raise config.wrong("head_dim" if "head_dim" in config else "hidden_size", "heads of even size, for RoPE")
        # transformers 5 has one object, older configs a number and an object that is null without scaling.
        rope = config.section("rope_parameters", "rope_scaling")
        theta = rope.number("rope_theta", default=config.number("rope_theta", default=10000.0))
        keys, factors = _scaling(rope, theta, d_head)
        return cls(
            n_vocab=vocabulary_rows(config, shapes, "model.embed_tokens.weight"),
            tied=config.boolean("tie_word_embeddings", default=False),
            n_layer=config.integer("num_hidden_layers", maximum=4096),
            n_ctx=config.integer("max_position_embeddings", "n_ctx", default=2048),
            n_embd=n_embd,
            n_ff=config.integer("intermediate_size"),
            n_head=n_head,
            n_head_kv=n_head_kv,
            d_head=d_head,
            d_head_stated="head_dim" in config,
            eps=config.number("rms_norm_eps", default=1e-6),
            rope_theta=theta,
            rope_keys=keys,
            rope_factors=factors,
            attention_bias=config.boolean("attention_bias", default=False),
            mlp_bias=config.boolean("mlp_bias", default=False),
            window=config.integer("sliding_window", default=0, minimum=0),
        )

    def keys(self, file_type: FileType) -> Iterator[tuple[str, Any]]:
        yield "block_count", self.n_layer
        yield "context_length", self.n_ctx
        yield "embedding_length", self.n_embd
        yield "feed_forward_length", self.n_ff
        yield "attention.head_count", self.n_head
        yield "attention.head_count_kv", self.n_head_kv
        yield from self.rope_keys
        yield "rope.freq_base", self.rope_theta
        yield "attention.layer_norm_rms_epsilon", self.eps
        if self.d_head_stated:
            yield "attention.key_length", self.d_head
            yield "attention.value_length", self.d_head
        yield "general.file_type", int(file_type)
        yield "vocab_size", self.n_vocab
        yield "rope.dimension_count", self.d_head

    def notes(self) -> Iterator[str]:
        if 0 < self.window < self.n_ctx:
            yield f"GGUF has no sliding window for this architecture: beyond {self.window} tokens results differ"

    def rows(self) -> Iterator[Row]:
        n, n_q, n_kv = self.n_embd, self.n_head * self.d_head, self.n_head_kv * self.d_head
        rope = interleave_rope(self.d_head)
        if self.rope_factors is not None:
            yield Row("rope_freqs.weight", self.rope_factors.shape, (), constant=self.rope_factors)
        yield row("model.embed_tokens.weight", "token_embd.weight", self.n_vocab, n)
        yield row("model.norm.weight", "output_norm.weight", n)
        yield row("lm_head.weight", "output.weight", self.n_vocab, n, tied_to="model.embed_tokens.weight")
        for i in range(self.n_layer):
            hf, blk = f"model.layers.{i}.", f"blk.{i}."
            yield row(hf + "input_layernorm.weight", blk + "attn_norm.weight", n)
            yield row(hf + "self_attn.q_proj.weight", blk + "attn_q.weight", n_q, n, transform=rope)
            yield row(hf + "self_attn.k_proj.weight", blk + "attn_k.weight", n_kv, n, transform=rope)
            yield row(hf + "self_attn.v_proj.weight", blk + "attn_v.weight", n_kv, n)
            yield row(hf + "self_attn.o_proj.weight", blk + "attn_output.weight", n, n_q)
            if self.attention_bias:
                yield row(hf + "self_attn.q_proj.bias", blk + "attn_q.bias", n_q, transform=rope)
                yield row(hf + "self_attn.k_proj.bias", blk + "attn_k.bias", n_kv, transform=rope)
                yield row(hf + "self_attn.v_proj.bias", blk + "attn_v.bias", n_kv)
                yield row(hf + "self_attn.o_proj.bias", blk + "attn_output.bias", n)
            yield row(hf + "post_attention_layernorm.weight", blk + "ffn_norm.weight", n)
            yield row(hf + "mlp.gate_proj.weight", blk + "ffn_gate.weight", self.n_ff, n)
            yield row(hf + "mlp.up_proj.weight", blk + "ffn_up.weight", self.n_ff, n)
            yield row(hf + "mlp.down_proj.weight", blk + "ffn_down.weight", n, self.n_ff)
            if self.mlp_bias:
                yield row(hf + "mlp.gate_proj.bias", blk + "ffn_gate.bias", self.n_ff)
                yield row(hf + "mlp.up_proj.bias", blk + "ffn_up.bias", self.n_ff)
                yield row(hf + "mlp.down_proj.bias", blk + "ffn_down.bias", n)


def _scaling(rope: Config, theta: float, d_head: int) -> tuple[tuple[tuple[str, Any], ...], np.ndarray | None]:
    """The keys or the factors of RoPE scaling."""
    kind = rope.string("rope_type", "type", default="default").lower()
    if kind == "default":
        return (), None
    if kind == "linear":
        return (("rope.scaling.type", "linear"), ("rope.scaling.factor", rope.number("factor"))), None
    if kind == "llama3":
        return (), _llama3_factors(rope, theta, d_head)
    raise UnsupportedError(f"{rope.where}: rope_type = {kind!r} is not supported, only linear and llama3 are.")


def _llama3_factors(rope: Config, theta: float, d_head: int) -> np.ndarray:
    """Llama 3.1's stretching: none for short wavelengths, `factor` for long ones, smooth between. f32 [d_head / 2]"""
    factor = rope.number("factor", default=8.0)
    low = rope.number("low_freq_factor", default=1.0)
    high = rope.number("high_freq_factor", default=4.0)
    n_ctx = rope.integer("original_max_position_embeddings", default=8192)
    if high <= low:
        raise rope.wrong("high_freq_factor", f"more than low_freq_factor = {low}")
    wavelength = 2 * math.pi * theta ** (np.arange(0, d_head, 2) / d_head)
    smooth = np.clip((n_ctx / wavelength - low) / (high - low), 0, 1)
    return (1 / ((1 - smooth) / factor + smooth)).astype(np.float32)
