"""GLM-4.5: half of every head rotated, experts as in DeepSeek-V3 after the first layers. arXiv:2508.06471"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

from hybrid.quant.ggml.families.glm4_moe import Glm4MoeHparams

from ..checkpoint import Config
from .blocks import Heads, read_turned
from .dots1 import ROUTED, Dots1
from .family import Row, Shapes
from .heads import Head, numbered_heads
from .llama import LLAMA, Llama
from .unused_fields import HEADS


@dataclass(frozen=True)
class Glm4Moe(Dots1):
    """One model of GLM-4.5, 4.6 or 4.7. Heads that guess tokens are numbered after the layers."""

    arch = "glm4moe"
    architectures: ClassVar[tuple[str, ...]] = ("Glm4MoeForCausalLM",)
    hparams = Glm4MoeHparams
    order = f"{LLAMA} n_rot {ROUTED} n_ahead?"
    pre: ClassVar[tuple[str, ...]] = ("glm4", "chatglm-bpe")
    conditional: ClassVar[Mapping[str, str]] = Llama.conditional
    without_effect: ClassVar[Mapping[str, str]] = HEADS
    usual_ctx, usual_eps = 131072, 1e-5
    usual_dense, usual_norm = 1, True
    norms: ClassVar[dict[str, str]] = {
        "input_layernorm": "attn_norm",
        "post_attention_layernorm": "post_attention_norm",
    }

    head_norm: ClassVar[tuple[str, ...]] = ()  # of a head, in the checkpoint and in GGUF; empty: as in DeepSeek-V3

    normed: bool  # queries and keys
    qkv_bias: bool
    heads_ahead: tuple[Head, ...] = ()

    @classmethod
    def read(cls, config: Config, shapes: Shapes) -> Self:
        model = super().read(config, shapes)
        return replace(model, heads_ahead=numbered_heads(shapes, model.n_layer, *cls.head_norm))

    @classmethod
    def read_turned(cls, config: Config, heads: Heads) -> int:
        return read_turned(config, heads.d_head, 0.5, heads.named(config))

    @classmethod
    def read_windows(cls, config: Config, n_layer: int) -> tuple[int, ...]:
        return (0,) * n_layer

    @classmethod
    def read_biases(cls, config: Config) -> dict[str, Any]:
        return {"attention_bias": False, "mlp_bias": False}  # the output of attention never has one

    @classmethod
    def read_more(cls, config: Config) -> dict[str, Any]:
        return {
            **super().read_more(config),
            "normed": config.boolean("use_qk_norm", default=False),
            "qkv_bias": config.boolean("attention_bias", default=False),
        }

    def left_out(self) -> tuple[str, ...]:
        # heads that the file leaves out, which are numbered after its blocks
        return (*self.dropped, *(f"model.layers.{self.blocks_in_file + i}." for i in range(2)))

    def notes(self) -> Iterator[str]:
        yield from self.scaling.notes

    def attention(self, hf: str, blk: str) -> Iterator[Row]:
        yield from self.heads.rows(hf, blk, self.n_embd, bias=self.qkv_bias, out_bias=False)
        if self.normed:
            yield from self.heads.norm_rows(hf, blk)


@dataclass(frozen=True)
class SolarOpen(Glm4Moe):
    """One model of Solar Open: whole heads rotated, experts on all layers, no norms of queries and keys."""

    architectures = ("SolarOpenForCausalLM",)
    pre = ("solar-open",)
    without_effect: ClassVar[Mapping[str, str]] = {"intermediate_size": "of layers without experts: it has none"}
    usual_dense, usual_theta, usual_head = 0, 1e6, 128

    @classmethod
    def read(cls, config: Config, shapes: Shapes) -> Self:
        config.expects("first_k_dense_replace", 0)
        config.expects("use_qk_norm", False)
        whole = {**config.data, "intermediate_size": config.integer("moe_intermediate_size", default=1280)}
        return super().read(Config(whole, config.where, config.looked, config.prefixes), shapes)

    @classmethod
    def read_turned(cls, config: Config, heads: Heads) -> int:
        return read_turned(config, heads.d_head, 1.0, heads.named(config))
