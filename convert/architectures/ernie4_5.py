"""ERNIE 4.5: Llama, also with experts beside shared ones, chosen by their scores plus a bias. Of Baidu."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

from hybrid.quant.ggml.families.ernie4_5 import Ernie45MoeHparams

from ..checkpoint import Config
from .blocks import read_layers, stacked_experts, swiglu
from .family import Row, Shapes, row
from .heads import MOST_HEADS, NOT_IN_LLAMA_CPP, Head
from .llama import LLAMA, Llama
from .unused_fields import HEADS

# A head's block is a layer without experts, after which stands the model's last norm, as in Baidu's own programs.
HEAD = Head("model.mtp_linear_proj.0.weight", "model.mtp_emb_norm.0.weight", "model.mtp_hidden_norm.0.weight")
HEAD_BLOCK = "model.mtp_block.0."
HEAD_PARTS = ("model.mtp_block.", "model.mtp_emb_norm.", "model.mtp_hidden_norm.", "model.mtp_linear_proj.")


@dataclass(frozen=True)
class Ernie45(Llama):
    """One dense model. Rows of queries and keys are in llama.cpp's RoPE order."""

    arch = "ernie4_5"
    architectures: ClassVar[tuple[str, ...]] = ("Ernie4_5ForCausalLM", "Ernie4_5_ForCausalLM")
    order = LLAMA
    pre = ()
    usually_tied = True
    usual_ctx, usual_eps, usual_theta = 131072, 1e-5, 500000.0
    usual_head = 128

    @classmethod
    def read_biases(cls, config: Config) -> dict[str, Any]:
        config.expects("compression_ratio", 1.0, 1)
        return dict.fromkeys(("attention_bias", "mlp_bias"), config.boolean("use_bias", default=False))

    def notes(self) -> Iterator[str]:
        yield from super().notes()
        if self.mlp_bias or self.scaling.tensors:
            yield (
                "llama.cpp cannot load this file: in this architecture it has no place for biases of feed-forward "
                "parts, nor for factors of RoPE"
            )

    def attention(self, hf: str, blk: str) -> Iterator[Row]:
        yield from self.heads.rows(hf, blk, self.n_embd, bias=self.attention_bias)


@dataclass(frozen=True)
class Ernie45Moe(Ernie45):
    """One model with experts on a range of layers, or on some layers of it."""

    arch = "ernie4_5-moe"
    architectures = ("Ernie4_5_MoeForCausalLM",)
    hparams = Ernie45MoeHparams
    order = (
        f"{LLAMA} n_expert n_expert_used .interleave_moe_layer_step=interval .leading_dense_block_count=first "
        "n_ff_expert .expert_shared_count=n_shared n_ff_shared? n_ahead?"
    )
    usual_head = 0
    without_effect: ClassVar[Mapping[str, str]] = {**Llama.without_effect, **HEADS}

    n_expert: int
    n_expert_used: int
    n_ff_expert: int
    n_shared: int
    interval: int
    first: int
    last: int
    heads_ahead: tuple[Head, ...] = ()

    @classmethod
    def read(cls, config: Config, shapes: Shapes) -> Self:
        names = (HEAD.join, HEAD_BLOCK + "mlp.up_proj.weight")
        heads = (HEAD,) if all(name in shapes for name in names) else ()
        return replace(super().read(config, shapes), heads_ahead=heads)

    def block_name(self, i: int) -> str:
        return super().block_name(i) if i < self.n_layer else HEAD_BLOCK

    def left_out(self) -> tuple[str, ...]:
        if not self.heads_ahead:
            return (*self.dropped, *HEAD_PARTS)
        return (*self.dropped, *(f"{part}{i}." for part in HEAD_PARTS for i in range(1, MOST_HEADS)))

    @classmethod
    def read_biases(cls, config: Config) -> dict[str, Any]:
        config.expects("use_bias", False)
        return super().read_biases(config)

    @classmethod
    def read_more(cls, config: Config) -> dict[str, Any]:
        config.expects("moe_norm_min", 1e-12)
        n_layer, n_expert = read_layers(config), config.integer("moe_num_experts", "num_experts", maximum=4096)
        last = config.integer("moe_layer_end_index", default=-1, minimum=-1)
        return {
            "n_expert": n_expert,
            "n_expert_used": config.integer("moe_k", "num_experts_per_tok", maximum=n_expert),
            "n_ff_expert": config.integer("moe_intermediate_size", default=1536),
            "n_shared": config.integer("moe_num_shared_experts", default=2, minimum=0),
            "interval": config.integer("moe_layer_interval", default=1),
            "first": config.integer("moe_layer_start_index", default=1, minimum=0),
            "last": n_layer - 1 if last < 0 else last,
        }

    def _has_experts(self, i: int) -> bool:
        return i < self.n_layer and (i + 1) % self.interval == 0 and self.first <= i <= self.last

    def values(self) -> dict[str, Any]:
        return super().values() | {"n_ff_shared": self.n_shared * self.n_ff_expert}

    def notes(self) -> Iterator[str]:
        yield from super().notes()
        if not all(self._has_experts(i) for i in range(self.first, self.n_layer)):
            yield (
                "llama.cpp cannot load this file: there all layers after the first "
                f"{self.first} have experts, here some have not"
            )
        if self.heads_ahead:
            yield NOT_IN_LLAMA_CPP

    def feed_forward(self, hf: str, blk: str, i: int) -> Iterator[Row]:
        if not self._has_experts(i):
            yield from super().feed_forward(hf, blk, i)
            return
        n, n_ff, bias = self.n_embd, self.n_ff_expert, hf + "moe_statics.e_score_correction_bias"
        yield row(hf + "gate.weight", blk + "ffn_gate_inp.weight", self.n_expert, n)
        yield row(bias, blk + "exp_probs_b.bias", 1, self.n_expert)
        names = tuple((part, part + "_proj") for part in ("gate", "up", "down"))
        yield from stacked_experts(hf + "experts.", blk, self.n_expert, n, n_ff, names)
        if self.n_shared:
            yield from swiglu(hf + "shared_experts.", blk, n, self.n_shared * n_ff, "_shexp")
