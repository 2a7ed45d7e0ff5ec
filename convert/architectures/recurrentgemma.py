"""RecurrentGemma: gated linear recurrences, and attention over a window on every third layer. arXiv:2404.07839

llama.cpp has no such architecture; names and keys are in docs/gguf-extensions.md.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np

from hybrid.quant.ggml.families.recurrentgemma import RecurrentGemmaHparams

from ..checkpoint import Config
from ..transforms import PLUS_ONE, transposed
from .blocks import HEAD_SIZE, SIZES, Heads, read_rope, read_turned, refuse_scaling, swiglu, swiglu_bias
from .decoder import Decoder
from .family import Row, Shapes, row
from .unused_fields import HIDDEN_ACT, LAYER_KINDS


@dataclass(frozen=True)
class RecurrentGemma(Decoder):
    """One model of RecurrentGemma (Griffin)."""

    arch = "recurrentgemma"
    architectures = ("RecurrentGemmaForCausalLM",)
    hparams = RecurrentGemmaHparams
    order = (
        f"{SIZES} {HEAD_SIZE} window eps n_rot freq_base n_channel n_lru_head=heads/n_head d_conv embedding_scale "
        "logit_cap=cap .general.file_type"
    )
    in_llama_cpp = False
    without_effect: ClassVar[Mapping[str, str]] = {
        **HIDDEN_ACT,
        **LAYER_KINDS,
        **dict.fromkeys(("w_init_variance_scale", "final_w_init_variance_scale"), "only training: initial values"),
    }

    n_ff: int
    heads: Heads
    n_head_kv: tuple[int, ...]  # per layer; 0 marks a recurrence
    n_rot: int
    freq_base: float
    window: int
    n_channel: int
    d_conv: int
    attention_bias: bool
    cap: float

    @classmethod
    def read(cls, config: Config, shapes: Shapes) -> Self:
        config.expects("hidden_activation", "gelu_pytorch_tanh")
        config.expects("embeddings_scale_by_sqrt_dim", True)
        sizes = cls.sizes(config, shapes, n_ctx=8192, tied=True)
        n_layer, n_embd = sizes["n_layer"], sizes["n_embd"]
        heads = Heads.read(config, n_embd)
        rope, theta = read_rope(config)
        refuse_scaling(rope)
        n_rot = read_turned(config, heads.d_head, 0.5, heads.named(config))
        kinds = config.get("block_types", "_block_types") or ["recurrent", "recurrent", "attention"]
        if not isinstance(kinds, list) or not all(kind in ("recurrent", "attention") for kind in kinds):
            raise config.wrong(config.named("block_types", "_block_types"), "a list of recurrent and attention")
        n_channel = config.integer("lru_width", default=n_embd)
        if n_channel % heads.n_head:
            raise config.wrong("lru_width", f"a multiple of the {heads.n_head} heads")
        n_ff = config.integer("intermediate_size", default=6 * n_embd)
        if n_ff % 2:
            raise config.wrong("intermediate_size", "an even number: gate and up have half of it each")
        return cls(
            **sizes,
            n_ff=n_ff // 2,
            heads=heads,
            n_head_kv=heads.per_layer([kinds[i % len(kinds)] == "attention" for i in range(n_layer)]),
            n_rot=n_rot,
            freq_base=theta,
            window=config.integer("sliding_window", "attention_window_size", default=2048),
            n_channel=n_channel,
            d_conv=config.integer("conv1d_width", default=4, minimum=2),
            attention_bias=config.boolean("attention_bias", default=False),
            cap=config.number("logits_soft_cap", default=30.0),
        )

    def values(self) -> dict[str, Any]:
        return {"embedding_scale": _as_bf16(math.sqrt(self.n_embd))}  # rounded to BF16, as in transformers

    def rows(self) -> Iterator[Row]:
        n = self.n_embd
        yield from self.outer_rows(self.embedding, "model.final_norm.weight", PLUS_ONE)
        for i in range(self.n_layer):
            hf, blk = f"model.layers.{i}.", f"blk.{i}."
            mixer, mlp = hf + "temporal_block.", hf + "mlp_block."
            yield row(hf + "temporal_pre_norm.weight", blk + "attn_norm.weight", n, transform=PLUS_ONE)
            yield row(hf + "channel_pre_norm.weight", blk + "ffn_norm.weight", n, transform=PLUS_ONE)
            if self.n_head_kv[i]:
                yield from self.heads.rows(mixer, blk, n, bias=self.attention_bias)
                if not self.attention_bias:  # the output has a bias nevertheless
                    yield row(mixer + "o_proj.bias", blk + "attn_output.bias", n)
            else:
                yield from self._recurrence(mixer, blk)
            yield from swiglu(mlp, blk, n, self.n_ff)
            yield from swiglu_bias(mlp, blk, n, self.n_ff)

    def _recurrence(self, hf: str, blk: str) -> Iterator[Row]:
        n, c, taps, n_head = self.n_embd, self.n_channel, self.d_conv, self.heads.n_head
        for source, target in (("linear_x", "lru_in"), ("linear_y", "lru_gate")):
            yield row(f"{hf}{source}.weight", f"{blk}{target}.weight", c, n)
            yield row(f"{hf}{source}.bias", f"{blk}{target}.bias", c)
        yield row(hf + "linear_out.weight", blk + "lru_out.weight", n, c)
        yield row(hf + "linear_out.bias", blk + "lru_out.bias", n)
        yield row(hf + "conv_1d.weight", blk + "ssm_conv1d.weight", c, taps, source_shape=(c, 1, taps))
        yield row(hf + "conv_1d.bias", blk + "ssm_conv1d.bias", c)
        width = c // n_head
        for source, target in (("input_gate", "lru_input_gate"), ("recurrent_gate", "lru_recurrence_gate")):
            p = f"{hf}rg_lru.{source}_"
            yield row(p + "weight", f"{blk}{target}.weight", n_head, width, width, transform=transposed(width))
            yield row(p + "bias", f"{blk}{target}.bias", c, source_shape=(n_head, width))
        yield row(hf + "rg_lru.recurrent_param", blk + "lru_a", c)


def _as_bf16(x: float) -> float:
    """x rounded to BF16, to nearest, ties to even."""
    bits = int(np.float32(x).view(np.uint32))
    return float(np.uint32((bits + 0x7FFF + (bits >> 16 & 1)) & 0xFFFF0000).view(np.float32))
