"""Falcon-H1: attention and Mamba-2 side by side on every layer, added up. arXiv:2507.22448

The config's multipliers are folded into the weights. If the output matrix is the embedding, each has its own
multiplier, so the file contains both.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import ClassVar, Self

import numpy as np

from hybrid.quant.ggml.families.falcon_h1 import FalconH1Hparams

from ..checkpoint import Config
from ..transforms import scaled
from .blocks import HEAD_SIZE, SILU, Heads, check_rows, read_plain_rope, swiglu, swiglu_bias
from .decoder import Decoder
from .family import Row, Shapes, row
from .mamba2 import SSM, Ssm
from .unused_fields import LAYER_KINDS, STEP_SIZES

_ONE = (
    "key_multiplier",
    "attention_in_multiplier",
    "attention_out_multiplier",
    "ssm_in_multiplier",
    "ssm_out_multiplier",
    "embedding_multiplier",
    "lm_head_multiplier",
)


@dataclass(frozen=True)
class FalconH1(Decoder):
    """One model, with multipliers to be folded into its weights."""

    arch = "falcon-h1"
    architectures = ("FalconH1ForCausalLM",)
    hparams = FalconH1Hparams
    order = (
        f"n_ctx_train n_embd n_ff n_head n_layer {SSM} eps .general.file_type .vocab_size n_head_kv {HEAD_SIZE} "
        "freq_base norm_first=norm_before_gate?"
    )
    pre = ("falcon-h1",)
    conditional: ClassVar[Mapping[str, str]] = {
        "mamba_expand": "where mamba_d_ssm is absent",
        "mamba_norm_before_gate": "where mamba_rms_norm is true",
    }
    without_effect: ClassVar[Mapping[str, str]] = {
        **STEP_SIZES,
        **LAYER_KINDS,
        "mlp_expansion_factor": "transformers has no such key: intermediate_size counts",
        "time_step_rank": "transformers has no such key: the rank is the number of heads",
    }

    n_ff: int
    heads: Heads
    freq_base: float
    attention_bias: bool
    mlp_bias: bool
    normed: bool
    norm_before_gate: bool
    ssm: Ssm
    multipliers: dict[str, float]
    mlp: tuple[float, ...]  # of gate and down
    parts_of_ssm: tuple[float, ...]  # of z, x, B, C, dt

    @classmethod
    def read(cls, config: Config, shapes: Shapes) -> Self:
        config.expects("hidden_act", *SILU)
        config.expects("mamba_use_mlp", True)
        config.expects("attn_layer_indices")
        sizes = cls.sizes(config, shapes, n_ctx=8192, eps=1e-5)
        n_embd = sizes["n_embd"]
        heads = Heads.read(config, n_embd)
        heads.require_even(config)
        normed = config.boolean("mamba_rms_norm", default=False)
        bias_out = config.boolean("projectors_bias", default=False)  # mamba_proj_bias is the projection in alone
        ssm = replace(Ssm.read(config, n_embd), bias_out=bias_out)
        check_rows(config, sum(ssm.parts), shapes, "mamba_d_ssm", "mamba_n_groups", "mamba_d_state", "mamba_n_heads")
        return cls(
            **sizes,
            n_ff=config.integer("intermediate_size"),
            heads=heads,
            freq_base=read_plain_rope(config),
            attention_bias=config.boolean("attention_bias", default=False),
            mlp_bias=config.boolean("mlp_bias", default=False),
            normed=normed,
            norm_before_gate=normed and config.boolean("mamba_norm_before_gate", default=True),
            ssm=ssm,
            multipliers={key: config.number(key, default=1.0) for key in _ONE},
            mlp=_several(config, "mlp_multipliers", 2),
            parts_of_ssm=_several(config, "ssm_multipliers", 5),
        )

    def notes(self) -> Iterator[str]:
        yield from self.ssm.notes()
        if self.norm_before_gate:
            yield "llama.cpp applies Mamba's gate before the norm, this model after it: its results differ"
        if self.attention_bias:
            yield "llama.cpp leaves out the bias of attention's output in this architecture: its results differ"

    def rows(self) -> Iterator[Row]:
        n, m, embedding = self.n_embd, self.multipliers, "model.embed_tokens.weight"
        into, outof = m["attention_in_multiplier"], scaled(m["attention_out_multiplier"])
        attention = (scaled(into), scaled(into * m["key_multiplier"]), scaled(into), outof)
        # the multiplier of a projection's input does not reach its bias
        biases = (None, scaled(m["key_multiplier"]), None, outof)
        parts = np.repeat(self.parts_of_ssm, self.ssm.parts)
        ssm = {
            "into": scaled(m["ssm_in_multiplier"] * parts),
            "into_bias": scaled(parts),
            "out": scaled(m["ssm_out_multiplier"]),
        }
        gate, down = map(scaled, self.mlp)
        yield row(embedding, "token_embd.weight", self.n_vocab, n, transform=scaled(m["embedding_multiplier"]))
        yield row("model.final_layernorm.weight", "output_norm.weight", n)
        head = scaled(m["lm_head_multiplier"])
        yield row("lm_head.weight", "output.weight", self.n_vocab, n, transform=head, otherwise=embedding)
        for i in range(self.n_layer):
            hf, blk = f"model.layers.{i}.", f"blk.{i}."
            yield row(hf + "input_layernorm.weight", blk + "attn_norm.weight", n)
            yield row(hf + "pre_ff_layernorm.weight", blk + "ffn_norm", n)  # GGUF's name has no suffix
            yield from self.heads.rows(
                hf + "self_attn.", blk, n, each=attention, bias=self.attention_bias, biases=biases
            )
            yield from self.ssm.rows(hf + "mamba.", blk, n, normed=self.normed, **ssm)
            yield from swiglu(hf + "feed_forward.", blk, n, self.n_ff, gate=gate, down=down)
            if self.mlp_bias:
                yield from swiglu_bias(hf + "feed_forward.", blk, n, self.n_ff, gate, down)


def _several(config: Config, key: str, n: int) -> tuple[float, ...]:
    """A list of n numbers; ones if absent."""
    values = config.get(key)
    if values is None:
        return (1.0,) * n
    if not isinstance(values, list) or len(values) != n:
        raise config.wrong(key, f"{n} numbers")
    return tuple(Config({key: value}, config.where).number(key) for value in values)
