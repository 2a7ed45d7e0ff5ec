"""LFM3: gated short convolutions, attention over a window and over all tokens, gates of heads. Of Liquid AI.

llama.cpp has no such architecture; names and keys are in docs/gguf-extensions.md.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Self

from hybrid.quant.ggml.families.lfm3 import Lfm3Hparams

from ..checkpoint import Config
from .blocks import HEAD_SIZE, SIZES, Heads, read_kinds, short_conv
from .decoder import Decoder
from .family import Row, Shapes, row, text_part
from .layer_ropes import FULL_BASE, LayerRopes
from .rope import SCALING
from .unused_fields import PICTURE_TENSORS, PICTURES, PROJECTOR
from .windows import KINDS as ATTENTION

KINDS = {"conv": "conv", **ATTENTION}


@dataclass(frozen=True)
class Lfm3(Decoder):
    """One model of LFM3."""

    arch = "lfm3"
    architectures = ("Lfm3ForCausalLM",)
    hparams = Lfm3Hparams
    order = (
        f"{SIZES} freq_base freq_base_local {SCALING} eps {HEAD_SIZE} .general.file_type window local .vocab_size "
        ".rope.dimension_count=heads/d_head d_conv"
    )
    pre = ("lfm2",)
    in_llama_cpp = False
    conditional: ClassVar[Mapping[str, str]] = {
        "sliding_window": "where a layer has a window",
        **dict.fromkeys(("rope_theta", "partial_rotary_factor"), "where rope_parameters is there and does not say"),
    }

    n_ff: int
    heads: Heads
    kinds: tuple[str, ...]  # of the layers
    window: int
    ropes: LayerRopes
    d_conv: int
    conv_bias: bool  # of convolutions and their projections
    attention_bias: bool
    post_norms: bool  # norms after both parts of a layer
    head_gate: bool

    @classmethod
    def read(cls, config: Config, shapes: Shapes) -> Self:
        spelled = {"eps": ("norm_eps", "rms_norm_eps")}
        sizes = cls.sizes(config, shapes, n_ctx=128000, eps=1e-5, tied=True, spelled=spelled)
        n_layer = sizes["n_layer"]
        heads = cls.read_heads(config)
        kinds = [_usual_kind(i) for i in range(n_layer)]
        if "layer_types" in config:
            kinds = read_kinds(config, KINDS, "layer_types", n_layer=n_layer)
        window = config.integer("sliding_window", default=0 if "sliding_window" in config.data else 256)
        if "sliding_attention" in kinds and not window:
            raise config.wrong("sliding_window", "a number of tokens, for the layers of sliding_attention")
        return cls(
            **sizes,
            n_ff=config.integer("intermediate_size"),
            heads=heads,
            kinds=tuple(kinds),
            window=window,
            ropes=cls.read_ropes(config, heads.d_head, sizes["n_ctx"]),
            d_conv=config.integer("conv_L_cache", default=7, minimum=2),
            conv_bias=config.boolean("conv_bias", default=False),
            attention_bias=config.boolean("attention_bias", default=False),
            post_norms=config.boolean("use_sandwich_norm", default=True),
            head_gate=config.boolean("use_attention_gate", default=True),
        )

    @classmethod
    def read_heads(cls, config: Config) -> Heads:
        """Without a size in the config, transformers uses heads of 128, whatever the width."""
        n_head = config.integer("num_attention_heads")
        n_kv = config.integer("num_key_value_heads", default=4)
        heads = Heads(n_head, n_kv, config.integer("head_dim", default=128, maximum=1 << 16), stated=True)
        if n_head % n_kv:
            raise config.wrong("num_key_value_heads", f"a divisor of the {n_head} attention heads")
        heads.require_even(config)
        return heads

    @classmethod
    def read_ropes(cls, config: Config, d_head: int, n_ctx: int) -> LayerRopes:
        """As in transformers: the older key takes precedence; settings outside of the objects apply to both kinds of
        layers."""
        theta = config.number("rope_theta", default=FULL_BASE)
        part = config.number("partial_rotary_factor", default=1.0)
        both = config.section("rope_scaling", "rope_parameters")
        return LayerRopes.read(both, d_head, 0.5, theta=theta, part=part, stretched=n_ctx)

    def values(self) -> dict[str, Any]:
        attends = self.heads.per_layer([kind != "conv" for kind in self.kinds])
        return {"n_head_kv": attends, "local": [kind == "sliding_attention" for kind in self.kinds]}

    def rows(self) -> Iterator[Row]:
        n = self.n_embd
        # the norm of the output, with llama.cpp's name for it in LFM2
        yield from self.outer_rows(self.embedding, "model.embedding_norm.weight", target="token_embd_norm.weight")
        if "full_attention" in self.kinds:
            yield from self.ropes.rows()
        for i, kind in enumerate(self.kinds):
            hf, blk = f"model.layers.{i}.", f"blk.{i}."
            yield row(hf + "operator_norm.weight", blk + "attn_norm.weight", n)
            yield row(hf + "ffn_norm.weight", blk + "ffn_norm.weight", n)
            if self.post_norms:
                yield row(hf + "post_operator_norm.weight", blk + "post_attention_norm.weight", n)
                yield row(hf + "post_ffn_norm.weight", blk + "post_ffw_norm.weight", n)
            if kind == "conv":
                yield from short_conv(hf + "conv.", blk + "shortconv.", n, self.d_conv, bias=self.conv_bias)
            else:
                yield from self._attention(hf + "self_attn.", blk)
            for part, name in (("gate", "w1"), ("down", "w2"), ("up", "w3")):
                shape = (n, self.n_ff) if part == "down" else (self.n_ff, n)
                yield row(f"{hf}feed_forward.{name}.weight", f"{blk}ffn_{part}.weight", *shape)

    def _attention(self, hf: str, blk: str) -> Iterator[Row]:
        yield from self.heads.rows(hf, blk, self.n_embd, bias=self.attention_bias)
        for part in ("q", "k"):
            yield row(f"{hf}{part}_norm.weight", f"{blk}attn_{part}_norm.weight", self.heads.d_head)
        if self.head_gate:
            yield row(hf + "gate_proj.weight", blk + "attn_gate.weight", self.heads.n_head, self.n_embd)


@dataclass(frozen=True)
class Lfm3Vl(Lfm3):
    """The text model of LFM3-VL."""

    architectures = ("Lfm3VlForConditionalGeneration",)
    without_effect: ClassVar[Mapping[str, str]] = {**PICTURES, **PROJECTOR}
    dropped: ClassVar[tuple[str, ...]] = PICTURE_TENSORS

    @classmethod
    def read(cls, config: Config, shapes: Shapes) -> Self:
        return super().read(text_part(config), shapes)

    def canonical(self, name: str) -> str:
        return super().canonical(name.replace("model.language_model.", "model.", 1))


def _usual_kind(i: int) -> str:
    """The default kind of layer i."""
    if i % 4 == 2:
        return "full_attention"
    return "sliding_attention" if i and i % 4 == 0 else "conv"
