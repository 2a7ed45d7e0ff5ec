"""Granite 4 H and Bamba: Mamba-2 and some attention, dense or with experts beside a shared one. Of ibm-granite and
ibm-ai-platform.

With Granite that has experts and attention alone, which is a Granite 4 H without Mamba-2. Bamba is stored as one.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Self

from hybrid.quant.ggml.families.granite import GraniteHparams
from hybrid.quant.ggml.families.granitehybrid import GraniteHybridHparams

from ..checkpoint import Config
from ..transforms import interleave_rope
from .blocks import (
    SILU,
    SIZES,
    Heads,
    read_kinds,
    read_plain_rope,
    read_rope,
    refuse_scaling,
    swiglu,
    swiglu_bias,
    twice_as_wide,
)
from .decoder import Decoder
from .family import UNLIMITED, Row, Shapes, TensorBlock, row
from .granite import SCALES, read_scales
from .jamba import periodic
from .mamba2 import SSM, Ssm
from .unused_fields import LAYER_KINDS

# transformers 5 has other words for the kinds of layers
KINDS = {"attention": "attention", "full_attention": "attention", "mamba": "mamba", "linear_attention": "mamba"}


@dataclass(frozen=True)
class GraniteHybrid(Decoder):
    """One model of Granite 4; `read` returns one of the classes below if no layer is Mamba-2."""

    arch: ClassVar[str] = "granitehybrid"
    architectures: ClassVar[tuple[str, ...]] = ("GraniteMoeHybridForCausalLM",)
    hparams: ClassVar[type[Any]] = GraniteHybridHparams
    order = (
        f"{SIZES} freq_base eps n_expert n_expert_used .general.file_type .vocab_size n_rot=heads/d_head {SCALES} "
        f"n_ff_shared? {SSM} uses_rope"
    )
    pre = ("dbrx", "refact")
    conditional: ClassVar[Mapping[str, str]] = {
        "max_position_embeddings": "where there are positions",
        "num_experts_per_tok": "where there are experts",
        "intermediate_size": "where there are experts",
        **dict.fromkeys(
            (
                "mamba_n_heads",
                "mamba_n_groups",
                "mamba_d_state",
                "mamba_d_head",
                "mamba_d_conv",
                "mamba_expand",
                "mamba_conv_bias",
                "mamba_proj_bias",
                "time_step_limit",
            ),
            "where a layer is Mamba-2",
        ),
    }
    without_effect: ClassVar[Mapping[str, str]] = {"init_method": "only training: initial values"}

    n_ff: int  # of an expert, or of a dense layer
    n_ff_shared: int  # of the shared expert; 0 without experts
    heads: Heads
    n_head_kv: tuple[int, ...]  # per layer; 0 marks a Mamba-2 layer
    freq_base: float
    uses_rope: bool
    attention_bias: bool
    n_expert: int
    n_expert_used: int
    scales: Mapping[str, float]
    ssm: Ssm | None  # None: no layer is Mamba-2

    @classmethod
    def read(cls, config: Config, shapes: Shapes) -> Self:
        config.expects("hidden_act", *SILU)
        hybrid = cls is GraniteHybrid  # transformers' Granite 4: no positions unless the config asks for them
        config.expects("position_embedding_type", "rope", *(("nope",) if hybrid else ()))
        config.expects("normalization_function", "rmsnorm")
        sizes = cls.sizes(config, shapes, n_ctx=2048)
        n_layer, n_embd = sizes["n_layer"], sizes["n_embd"]
        heads = Heads.read(config, n_embd, head_dim=False)
        heads.require_even(config)
        kinds = ["attention"] * n_layer
        if hybrid:
            kinds = read_kinds(config, KINDS, "layer_types", "layers_block_type", n_layer=n_layer)
        n_expert = config.integer("num_local_experts", default=0, minimum=0, maximum=4096)
        n_expert_used = config.integer("num_experts_per_tok", default=0, minimum=0)
        if n_expert and not 1 <= n_expert_used <= n_expert:
            raise config.wrong("num_experts_per_tok", f"1 to {n_expert}")
        optional: dict[str, int] = {} if hybrid else {"default": 0, "minimum": 0}
        n_ff_shared = config.integer("shared_intermediate_size", **optional)
        # without Mamba layers GGUF has another architecture
        family_type: Any = cls
        if "mamba" not in kinds:
            family_type = GraniteMoe if n_expert else GraniteAttention
        made: Self = family_type(
            **sizes,
            n_ff=config.integer("intermediate_size") if n_expert else n_ff_shared,
            n_ff_shared=n_ff_shared if n_expert else 0,
            heads=heads,
            n_head_kv=heads.per_layer([kind == "attention" for kind in kinds]),
            freq_base=read_plain_rope(config),
            uses_rope=config.string("position_embedding_type", default="nope" if hybrid else "rope") == "rope",
            attention_bias=config.boolean("attention_bias", default=False),
            n_expert=n_expert,
            n_expert_used=n_expert_used if n_expert else 0,
            scales=read_scales(config),
            ssm=Ssm.read(config, n_embd) if "mamba" in kinds else None,
        )
        return made

    def values(self) -> dict[str, Any]:
        return {**self.scales, "n_ctx_train": self.n_ctx if self.uses_rope else UNLIMITED}

    def notes(self) -> Iterator[str]:
        if self.ssm:
            yield from twice_as_wide(self.ssm.d_inner, self.n_embd)
            yield from self.ssm.notes()

    def parts(self, name: str, shape: tuple[int, ...]) -> Iterator[TensorBlock]:
        """input_linear contains gate, then up, for every expert. Other shapes stay whole."""
        halves = ("gate", "up")
        if name.endswith(".shared_mlp.input_linear.weight"):
            n_ff = self.n_ff_shared or self.n_ff
            if shape == (2 * n_ff, self.n_embd):
                for i, half in enumerate(halves):
                    yield TensorBlock(f"{name}.{half}", (i * n_ff, 0), (n_ff, self.n_embd))
        elif name.endswith(".input_linear.weight") and shape == (self.n_expert, 2 * self.n_ff, self.n_embd):
            for e in range(self.n_expert):
                for i, half in enumerate(halves):
                    yield TensorBlock(f"{name}.{half}.{e}", (e, i * self.n_ff, 0), (self.n_ff, self.n_embd))

    def rows(self) -> Iterator[Row]:
        # reordered even without positions, as in llama.cpp's files
        n, turned = self.n_embd, interleave_rope(self.heads.d_head)
        yield from self.outer_rows(self.embedding, "model.norm.weight")
        for i in range(self.n_layer):
            hf, blk = f"model.layers.{i}.", f"blk.{i}."
            yield row(hf + "input_layernorm.weight", blk + "attn_norm.weight", n)
            yield row(hf + "post_attention_layernorm.weight", blk + "ffn_norm.weight", n)
            if self.n_head_kv[i]:
                yield from self.heads.rows(hf + "self_attn.", blk, n, turned, bias=self.attention_bias)
            elif self.ssm:
                yield from self.ssm.rows(hf + "mamba.", blk, n)
            if self.n_expert:
                yield from self._moe(hf + "block_sparse_moe.", blk)
            shared, n_ff = ("_shexp", self.n_ff_shared) if self.n_expert else ("", self.n_ff)
            if not n_ff:
                continue
            mlp = hf + "shared_mlp."
            yield row(mlp + "input_linear.weight.gate", f"{blk}ffn_gate{shared}.weight", n_ff, n)
            yield row(mlp + "input_linear.weight.up", f"{blk}ffn_up{shared}.weight", n_ff, n)
            yield row(mlp + "output_linear.weight", f"{blk}ffn_down{shared}.weight", n, n_ff)

    def _moe(self, hf: str, blk: str) -> Iterator[Row]:
        n, n_ff, n_expert = self.n_embd, self.n_ff, self.n_expert
        yield row(hf + "router.layer.weight", blk + "ffn_gate_inp.weight", n_expert, n)
        for half in ("gate", "up"):
            sources = tuple(f"{hf}input_linear.weight.{half}.{e}" for e in range(n_expert))
            yield Row(f"{blk}ffn_{half}_exps.weight", (n_expert, n_ff, n), sources, group=hf)
        yield row(hf + "output_linear.weight", blk + "ffn_down_exps.weight", n_expert, n, n_ff)


@dataclass(frozen=True)
class GraniteMoe(GraniteHybrid):
    """Granite with experts and without Mamba-2."""

    arch = "granitemoe"
    architectures = ("GraniteMoeForCausalLM", "GraniteMoeSharedForCausalLM")
    hparams = GraniteHparams
    order = GraniteHybrid.order.replace(f" {SSM}", "")


@dataclass(frozen=True)
class GraniteAttention(GraniteHybrid):
    """A Granite 4 H that is all attention, and dense."""

    arch = "granite"
    hparams = GraniteHparams
    order = GraniteMoe.order


@dataclass(frozen=True)
class Bamba(Decoder):
    """Bamba of IBM, Princeton, CMU and UIUC: RoPE on half of each head, a dense part on every layer; stored as a
    Granite 4 H. Rows of queries and keys are reordered for RoPE on neighbouring values, in the rotated part of a head.
    """

    arch = "granitehybrid"
    architectures = ("BambaForCausalLM",)
    hparams = GraniteHybridHparams
    order = f"{SIZES} freq_base eps .general.file_type .vocab_size {SSM} n_rot uses_rope"
    uses_rope = True
    pre = ("llama-bpe",)
    without_effect: ClassVar[Mapping[str, str]] = {
        **LAYER_KINDS,
        "partial_rotary_factor": "transformers replaces it with 0.5; the value in rope_parameters counts",
    }

    n_ff: int
    heads: Heads
    n_head_kv: tuple[int, ...]  # per layer; 0 marks a Mamba-2 layer
    n_rot: int
    freq_base: float
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
            freq_base=theta,
            attention_bias=config.boolean("attention_bias", default=False),
            mlp_bias=config.boolean("mlp_bias", default=False),
            ssm=Ssm.read(config, n_embd),
        )

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
