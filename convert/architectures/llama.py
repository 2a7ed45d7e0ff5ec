"""Llama and Mistral: attention with RoPE and a gated feed-forward part on every layer. arXiv:2302.13971"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
from hybrid.quant.ggml.errors import UnsupportedError
from hybrid.quant.ggml.types import FileType

from ..checkpoint import Config
from ..transforms import interleave_rope
from .blocks import Heads, read_rope, size_keys, swiglu, swiglu_bias
from .decoder import Decoder
from .family import Row, Shapes, row


@dataclass(frozen=True)
class Llama(Decoder):
    """One model of Llama or Mistral, and what families like it change: the class variables, `read_more`, `more_keys`,
    `attention` and `feed_forward`."""

    arch: ClassVar[str] = "llama"
    architectures: ClassVar[tuple[str, ...]] = (
        "LlamaForCausalLM", "LLaMAForCausalLM", "MistralForCausalLM", "LlamaModel", "MistralModel",
    )  # fmt: skip
    pre: ClassVar[tuple[str, ...]] = ("llama-bpe",)
    activations: ClassVar[tuple[str, ...]] = ("silu",)
    eps_keys: ClassVar[tuple[str, str]] = ("rms_norm_eps", "attention.layer_norm_rms_epsilon")  # config's and GGUF's
    norm_bias: ClassVar[bool] = False
    last_norm: ClassVar[str] = "model.norm"
    usually_tied: ClassVar[bool] = False  # where the config does not say
    # of a layer: the checkpoint's and GGUF's names
    norms: ClassVar[dict[str, str]] = {"input_layernorm": "attn_norm", "post_attention_layernorm": "ffn_norm"}

    n_ff: int
    heads: Heads
    rope_theta: float
    rope_keys: tuple[tuple[str, Any], ...]  # of a scaling that llama.cpp computes from keys
    rope_factors: np.ndarray | None  # f32 [d_head / 2]: divides the frequencies (Llama 3)
    attention_bias: bool
    mlp_bias: bool
    window: int  # attention reaches so far back; 0 = to the beginning

    @classmethod
    def read(cls, config: Config, shapes: Shapes) -> Self:
        config.expects("hidden_act", *cls.activations)
        spelled = {"n_ctx": ("max_position_embeddings", "n_ctx"), "eps": cls.eps_keys[:1]}
        sizes = cls.sizes(config, shapes, n_ctx=2048, tied=cls.usually_tied, spelled=spelled)
        # a checkpoint of the model without its head, for embeddings
        sizes["tied"] |= str(config.get("architectures")).endswith("Model']")
        n_embd = sizes["n_embd"]
        heads = Heads.read(config, n_embd)
        heads.require_even(config)
        rope, theta = read_rope(config)
        off = config.get("use_sliding_window") is False
        keys, factors = _scaling(rope, theta, heads.d_head)
        return cls(
            **sizes,
            n_ff=config.integer("intermediate_size"),
            heads=heads,
            rope_theta=theta,
            rope_keys=keys,
            rope_factors=factors,
            attention_bias=config.boolean("attention_bias", default=False),
            mlp_bias=config.boolean("mlp_bias", default=False),
            window=0 if off else config.integer("sliding_window", default=0, minimum=0),
            **cls.read_more(config),
        )

    @classmethod
    def read_more(cls, config: Config) -> dict[str, Any]:
        """The fields of a family that adds some."""
        return {}

    def keys(self, file_type: FileType) -> Iterator[tuple[str, Any]]:
        heads = self.heads
        yield from size_keys(self.n_layer, self.n_ctx, self.n_embd, self.n_ff, heads.n_head, heads.n_kv)
        yield from self.rope_keys
        yield "rope.freq_base", self.rope_theta
        yield self.eps_keys[1], self.eps
        if heads.stated:
            yield from heads.keys()
        yield "general.file_type", int(file_type)
        yield from self.more_keys()

    def more_keys(self) -> Iterator[tuple[str, Any]]:
        """What stands behind the keys that all have."""
        yield "vocab_size", self.n_vocab
        yield "rope.dimension_count", self.heads.d_head

    def canonical(self, name: str) -> str:
        return name if name.startswith(("model.", "lm_head.")) else f"model.{name}"

    def notes(self) -> Iterator[str]:
        if 0 < self.window < self.n_ctx:
            yield f"GGUF has no sliding window for this architecture: beyond {self.window} tokens results differ"

    def rows(self) -> Iterator[Row]:
        n = self.n_embd
        if self.rope_factors is not None:
            yield Row("rope_freqs.weight", self.rope_factors.shape, (), constant=self.rope_factors)
        yield from self.outer_rows(self.embedding, self.last_norm + ".weight")
        if self.norm_bias:
            yield row(self.last_norm + ".bias", "output_norm.bias", n)
        for i in range(self.n_layer):
            hf, blk = f"model.layers.{i}.", f"blk.{i}."
            for source, target in self.norms.items():
                yield row(f"{hf}{source}.weight", f"{blk}{target}.weight", n)
                if self.norm_bias:
                    yield row(f"{hf}{source}.bias", f"{blk}{target}.bias", n)
            yield from self.attention(hf + "self_attn.", blk)
            yield from self.feed_forward(hf + "mlp.", blk)

    def attention(self, hf: str, blk: str) -> Iterator[Row]:
        """Tensors of the attention of a layer."""
        turned = interleave_rope(self.heads.d_head)
        yield from self.heads.rows(hf, blk, self.n_embd, turned, bias=self.attention_bias)

    def feed_forward(self, hf: str, blk: str) -> Iterator[Row]:
        """Tensors of its feed-forward part."""
        yield from swiglu(hf, blk, self.n_embd, self.n_ff)
        if self.mlp_bias:
            yield from swiglu_bias(hf, blk, self.n_embd, self.n_ff)


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
