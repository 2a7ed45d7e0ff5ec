"""LFM2: gated short convolutions, and attention on some layers. arXiv:2511.23404"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np

from hybrid.quant.ggml.errors import CheckpointError
from hybrid.quant.ggml.families.experts import SIGMOID
from hybrid.quant.ggml.families.lfm2 import Lfm2Hparams, Lfm2MoeHparams

from ..checkpoint import Config
from .blocks import SIZES, Heads, read_kinds, read_rope, refuse_scaling, short_conv, stacked_experts
from .decoder import Decoder
from .experts import weights_norm_note
from .family import Row, Shapes, row, text_part
from .unused_fields import ONLY_PICTURES, PICTURE_TENSORS, PICTURES, PROJECTOR

KINDS = {"conv": "conv", "full_attention": "full_attention"}
KEYS = {
    "n_embd": ("hidden_size", "block_dim"),
    "eps": ("norm_eps", "block_norm_eps"),
    "tied": ("tie_embedding", "tie_word_embeddings"),
}


@dataclass(frozen=True)
class Lfm2(Decoder):
    """One dense model."""

    arch = "lfm2"
    architectures: ClassVar[tuple[str, ...]] = ("Lfm2ForCausalLM", "LFM2ForCausalLM")
    hparams: ClassVar[type[Any]] = Lfm2Hparams
    order = f"{SIZES} freq_base eps .general.file_type .vocab_size d_conv"
    pre = ("lfm2",)
    conditional: ClassVar[Mapping[str, str]] = {"full_attn_idxs": "where layer_types is absent"}
    without_effect: ClassVar[Mapping[str, str]] = {
        **dict.fromkeys(
            ("block_mlp_init_scale", "block_out_init_scale", "block_use_xavier_init", "conv_use_xavier_init"),
            "only training: initial values",
        ),
        **dict.fromkeys(("conv_dim", "conv_dim_out", "num_heads"), "transformers has no such key: other keys say it"),
    }

    n_ff: int
    heads: Heads
    n_head_kv: tuple[int, ...]  # per layer; 0 marks a convolution
    freq_base: float
    d_conv: int
    conv_bias: bool  # of convolutions and their projections
    n_dense: int  # layers before the first one with experts
    n_expert: int
    n_expert_used: int
    n_ff_expert: int
    expert_bias: bool
    weights_norm: bool
    weights_scale: float

    @classmethod
    def read(cls, config: Config, shapes: Shapes) -> Self:
        config.expects("block_use_swiglu", True)
        config.expects("use_pos_enc", True)
        sizes = cls.sizes(config, shapes, n_ctx=128000, eps=1e-5, tied=True, spelled=KEYS)
        n_layer, n_embd = sizes["n_layer"], sizes["n_embd"]
        heads = Heads.read(config, n_embd, head_dim=False)
        heads.require_even(config)
        rope, theta = read_rope(config)
        refuse_scaling(rope)
        experts = cls is Lfm2Moe
        n_ff = config.integer(*(() if experts else ("block_ff_dim",)), "intermediate_size")
        n_expert = config.integer("num_experts", maximum=4096) if experts else 0
        return cls(
            **sizes,
            n_ff=n_ff if experts else _adjusted(config, n_ff),
            heads=heads,
            n_head_kv=heads.per_layer(_attention(config, n_layer)),
            freq_base=theta if rope.get("rope_theta") else config.number("rope_theta", "theta", default=1000000.0),
            d_conv=config.integer("conv_L_cache", default=3, minimum=2),
            conv_bias=config.boolean("conv_bias", default=False),
            n_dense=config.integer("num_dense_layers", default=2, minimum=0) if experts else n_layer,
            n_expert=n_expert,
            n_expert_used=config.integer("num_experts_per_tok", maximum=n_expert) if experts else 0,
            n_ff_expert=config.integer("moe_intermediate_size") if experts else 0,
            expert_bias=experts and config.boolean("use_expert_bias", default=True),
            weights_norm=not experts or config.boolean("norm_topk_prob", default=True),
            weights_scale=config.number("routed_scaling_factor", default=1.0) if experts else 1.0,
        )

    def notes(self) -> Iterator[str]:
        if self.conv_bias and not all(self.n_head_kv):
            yield "llama.cpp cannot load this file: there short convolutions have no biases"
        if not self.weights_norm:
            yield weights_norm_note(self.weights_norm)
        if self.weights_scale != 1.0:
            yield "llama.cpp ignores routed_scaling_factor: it has no key for it in this architecture"

    def rows(self) -> Iterator[Row]:
        n, d_head = self.n_embd, self.heads.d_head
        # the norm of the output, with llama.cpp's name for it
        yield from self.outer_rows(self.embedding, "model.embedding_norm.weight", target="token_embd_norm.weight")
        for i in range(self.n_layer):
            hf, blk = f"model.layers.{i}.", f"blk.{i}."
            yield row(hf + "operator_norm.weight", blk + "attn_norm.weight", n)
            yield row(hf + "ffn_norm.weight", blk + "ffn_norm.weight", n)
            if self.n_head_kv[i]:
                yield from self.heads.rows(hf + "self_attn.", blk, n, out="out_proj")
                yield row(hf + "self_attn.q_layernorm.weight", blk + "attn_q_norm.weight", d_head)
                yield row(hf + "self_attn.k_layernorm.weight", blk + "attn_k_norm.weight", d_head)
            else:
                yield from short_conv(hf + "conv.", blk + "shortconv.", n, self.d_conv, bias=self.conv_bias)
            yield from self._feed_forward(hf + "feed_forward.", blk, i)

    def _feed_forward(self, hf: str, blk: str, i: int) -> Iterator[Row]:
        n, n_ff, parts = self.n_embd, self.n_ff, (("gate", "w1"), ("down", "w2"), ("up", "w3"))
        if i < self.n_dense:
            for part, name in parts:
                shape = (n, n_ff) if part == "down" else (n_ff, n)
                yield row(f"{hf}{name}.weight", f"{blk}ffn_{part}.weight", *shape)
            return
        yield row(hf + "gate.weight", blk + "ffn_gate_inp.weight", self.n_expert, n)
        bias = blk + "exp_probs_b.bias"
        if self.expert_bias:
            yield row(hf + "expert_bias", bias, self.n_expert)
        else:  # readers want one
            yield Row(bias, (self.n_expert,), (), constant=np.zeros(self.n_expert, np.float32))
        yield from stacked_experts(hf + "experts.", blk, self.n_expert, n, self.n_ff_expert, parts)


@dataclass(frozen=True)
class Lfm2Embedding(Lfm2):
    """One model without an output matrix, for embeddings: LFM2-ColBERT, which makes a vector of every token."""

    architectures = ("Lfm2Model",)
    generates = False
    without_effect: ClassVar[Mapping[str, str]] = {
        **Lfm2.without_effect,
        **dict.fromkeys(("tie_embedding", "tie_word_embeddings"), "it has no output matrix"),
    }

    def dense_keys(self, sizes: Sequence[tuple[int, int]]) -> list[tuple[str, Any]]:
        if len(sizes) != 1 or sizes[0][0] != self.n_embd:
            raise CheckpointError(
                f"the dense layers of modules.json have sizes {list(sizes)}, expected one, of {self.n_embd} inputs."
            )
        return [("embedding_length_out", sizes[0][1])]

    def rows(self) -> Iterator[Row]:
        yield from (one for one in super().rows() if one.target != "output.weight")

    def canonical(self, name: str) -> str:
        return super().canonical(name if name.startswith("model.") else f"model.{name}")


@dataclass(frozen=True)
class Lfm2Bidirectional(Lfm2Embedding):
    """One encoder: tokens see those on both sides, in attention and in convolutions (LFM2.5-Embedding)."""

    architectures = ("Lfm2BidirectionalModel",)
    order = f"{Lfm2.order} .attention.causal"

    @classmethod
    def read(cls, config: Config, shapes: Shapes) -> Self:
        family = super().read(config, shapes)
        if family.d_conv % 2 == 0:
            raise config.wrong("conv_L_cache", "an odd number: as many tokens before as after")
        return family

    def values(self) -> dict[str, Any]:
        return {**super().values(), "attention.causal": False}


@dataclass(frozen=True)
class Lfm2Vl(Lfm2):
    """The text model of LFM2-VL."""

    architectures = ("Lfm2VlForConditionalGeneration",)
    without_effect: ClassVar[Mapping[str, str]] = {
        **Lfm2.without_effect,
        **PICTURES,
        **PROJECTOR,
        **dict.fromkeys(
            (
                *("do_image_splitting", "encoder_patch_size", "max_image_tokens", "max_num_patches", "tile_size"),
                *("max_pixels_tolerance", "max_tiles", "min_image_tokens", "min_tiles", "use_thumbnail"),
            ),
            ONLY_PICTURES,
        ),
    }
    dropped: ClassVar[tuple[str, ...]] = PICTURE_TENSORS

    @classmethod
    def read(cls, config: Config, shapes: Shapes) -> Self:
        return super().read(text_part(config), shapes)

    def canonical(self, name: str) -> str:
        return super().canonical(name.replace("model.language_model.", "model.", 1))


@dataclass(frozen=True)
class Lfm2Moe(Lfm2):
    """One model with experts on all layers but the first ones."""

    arch = "lfm2moe"
    architectures = ("Lfm2MoeForCausalLM",)

    def values(self) -> dict[str, Any]:
        return {"expert_gating_func": SIGMOID}

    hparams = Lfm2MoeHparams
    order = (
        f"{SIZES} freq_base eps n_expert n_expert_used .general.file_type n_ff_expert n_dense .expert_gating_func "
        "weights_norm? weights_scale? .vocab_size d_conv"
    )


def _adjusted(config: Config, n_ff: int) -> int:
    """The width that transformers makes of the config's: two thirds of it, times a factor, rounded up to a multiple."""
    if not config.boolean("block_auto_adjust_ff_dim", default=True):
        return n_ff
    factor = config.number("block_ffn_dim_multiplier", default=1.0)
    multiple = config.integer("block_multiple_of", default=256)
    return -(-int(factor * int(2 * n_ff / 3)) // multiple) * multiple


def _attention(config: Config, n_layer: int) -> list[bool]:
    """Per layer, whether it has attention; older configs list the layers that have."""
    indices = config.get("full_attn_idxs")
    if "layer_types" in config or indices is None:
        kinds = read_kinds(config, KINDS, "layer_types", n_layer=n_layer)
        return [kind == "full_attention" for kind in kinds]
    if not isinstance(indices, list) or not all(type(i) is int and 0 <= i < n_layer for i in indices):
        raise config.wrong("full_attn_idxs", f"numbers of the {n_layer} layers")
    return [i in indices for i in range(n_layer)]
