"""Bamba: Mamba-2 and some attention with RoPE on half of each head, a gated feed-forward part on every layer. Of IBM,
Princeton, CMU and UIUC; in GGUF it is a Granite 4 H."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Self

from hybrid.quant.ggml.types import FileType

from ..checkpoint import Config
from ..transforms import interleave_rope
from .blocks import SILU, Heads, read_rope, refuse_scaling, size_keys, swiglu, swiglu_bias, twice_as_wide
from .decoder import Decoder
from .family import Row, Shapes, row
from .jamba import periodic
from .mamba2 import Ssm
from .unused_fields import LAYER_KINDS


@dataclass(frozen=True)
class Bamba(Decoder):
    """One model. Queries and keys are turned over to RoPE on neighbours, in the part of a head that turns."""

    arch = "granitehybrid"
    architectures = ("BambaForCausalLM",)
    pre = ("llama-bpe",)
    without_effect: ClassVar[Mapping[str, str]] = {
        **LAYER_KINDS, "partial_rotary_factor": "transformers puts 0.5 in its place; that of rope_parameters counts",
    }  # fmt: skip

    n_ff: int
    heads: Heads
    n_head_kv: tuple[int, ...]  # per layer; 0 marks a Mamba-2 layer
    n_rot: int
    rope_theta: float
    attention_bias: bool
    mlp_bias: bool
    ssm: Ssm

    @classmethod
    def read(cls, config: Config, shapes: Shapes) -> Self:
        config.expects("hidden_act", *SILU)
        sizes = cls.sizes(config, shapes, n_ctx=262144, eps=1e-5)
        n_layer, n_embd = sizes["n_layer"], sizes["n_embd"]
        heads = Heads.read(config, n_embd, head_dim=False)
        rope, theta = read_rope(config)
        refuse_scaling(rope)
        d_head = heads.d_head
        part = int(d_head * rope.number("partial_rotary_factor", default=0.5))
        n_rot = config.integer("attn_rotary_emb", default=part, minimum=2, maximum=d_head)
        if rope.get("partial_rotary_factor") is not None and n_rot != part:
            raise config.wrong("attn_rotary_emb", f"{part}, as partial_rotary_factor says")
        if n_rot % 2 or not 0 < n_rot <= d_head:
            named = "attn_rotary_emb" if "attn_rotary_emb" in config else "num_attention_heads"
            raise config.wrong(
                named, f"a positive even number of values to turn in heads of {d_head}; it gives {n_rot}"
            )
        return cls(
            **sizes,
            n_ff=config.integer("intermediate_size"),
            heads=heads,
            n_head_kv=heads.per_layer(_attention(config, n_layer)),
            n_rot=n_rot,
            rope_theta=theta,
            attention_bias=config.boolean("attention_bias", default=False),
            mlp_bias=config.boolean("mlp_bias", default=False),
            ssm=Ssm.read(config, n_embd),
        )

    def keys(self, file_type: FileType) -> Iterator[tuple[str, Any]]:
        yield from size_keys(self.n_layer, self.n_ctx, self.n_embd, self.n_ff, self.heads.n_head, self.n_head_kv)
        yield "rope.freq_base", self.rope_theta
        yield "attention.layer_norm_rms_epsilon", self.eps
        yield "general.file_type", int(file_type)
        yield "vocab_size", self.n_vocab
        yield from self.ssm.keys()
        yield "rope.dimension_count", self.n_rot
        yield "rope.scaling.finetuned", True

    def notes(self) -> Iterator[str]:
        yield from twice_as_wide(self.ssm.d_inner, self.n_embd)
        yield from self.ssm.notes()

    def rows(self) -> Iterator[Row]:
        n, turned = self.n_embd, interleave_rope(self.heads.d_head, self.n_rot)
        yield from self.outer_rows(self.embedding, "model.final_layernorm.weight")
        for i in range(self.n_layer):
            hf, blk = f"model.layers.{i}.", f"blk.{i}."
            yield row(hf + "input_layernorm.weight", blk + "attn_norm.weight", n)
            yield row(hf + "pre_ff_layernorm.weight", blk + "ffn_norm.weight", n)
            if self.n_head_kv[i]:
                yield from self.heads.rows(hf + "self_attn.", blk, n, turned, bias=self.attention_bias)
            else:
                yield from self.ssm.rows(hf + "mamba.", blk, n)
            yield from swiglu(hf + "feed_forward.", blk, n, self.n_ff)
            if self.mlp_bias:
                yield from swiglu_bias(hf + "feed_forward.", blk, n, self.n_ff)


def _attention(config: Config, n_layer: int) -> tuple[bool, ...]:
    """Per layer, whether it has attention."""
    indices = config.get("attn_layer_indices")
    if indices is None and "attn_layer_period" in config:
        return periodic(config, "attn_layer", n_layer)
    if indices is None:
        return (False,) * n_layer
    if not isinstance(indices, list) or not all(type(i) is int and 0 <= i < n_layer for i in indices):
        raise config.wrong("attn_layer_indices", f"numbers of the {n_layer} layers")
    return tuple(i in indices for i in range(n_layer))
