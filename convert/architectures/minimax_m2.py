"""MiniMax-M2: norms over all heads of queries and of keys, experts as in DeepSeek-V3 on all layers. Of MiniMax."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from hybrid.quant.ggml.families.experts import SIGMOID
from hybrid.quant.ggml.families.minimax_m2 import MiniMaxM2Hparams

from ..checkpoint import Config
from .blocks import NUMBERED, Heads, read_layers, read_turned, routed_experts
from .family import Row
from .llama import LLAMA, Llama
from .olmo import Olmo2


@dataclass(frozen=True)
class MiniMaxM2(Llama):
    """One model of MiniMax-M2."""

    arch = "minimax-m2"
    architectures = ("MiniMaxM2ForCausalLM",)
    hparams = MiniMaxM2Hparams
    order = f"{LLAMA} n_expert n_expert_used gating n_ff_expert=n_ff n_rot"
    pre = ("minimax-m2",)
    conditional: ClassVar[Mapping[str, str]] = {
        **Llama.conditional,
        "rotary_dim": "where partial_rotary_factor is absent",
    }
    without_effect: ClassVar[Mapping[str, str]] = {
        "router_jitter_noise": "only training: noise of what routers read",
        **dict.fromkeys(
            ("layernorm_full_attention_beta", "layernorm_linear_attention_beta", "layernorm_mlp_beta",
             "mlp_intermediate_size", "shared_moe_mode", "sliding_window"), "transformers ignores it",
        ),
        **dict.fromkeys(
            ("use_mtp", "num_mtp_modules", "mtp_transformer_layers"), "only layers that guess tokens ahead"
        ),
    }  # fmt: skip
    usual_ctx, usual_head, usual_theta = 196608, 128, 5e6
    gating = SIGMOID

    n_expert: int
    n_expert_used: int

    @classmethod
    def read_turned(cls, config: Config, heads: Heads) -> int:
        part = config.integer("rotary_dim", default=heads.d_head) / heads.d_head
        return read_turned(config, heads.d_head, part, config.named("rotary_dim"))

    @classmethod
    def read_biases(cls, config: Config) -> dict[str, Any]:
        return {"attention_bias": False, "mlp_bias": False}

    @classmethod
    def read_more(cls, config: Config) -> dict[str, Any]:
        config.expects("scoring_func", "sigmoid")
        config.expects("use_routing_bias", True)
        config.expects("use_qk_norm", True)
        config.expects("qk_norm_type", "per_layer")
        config.expects("shared_intermediate_size", 0)
        config.expects("attn_type_list", [1] * read_layers(config))
        n_expert = config.integer("num_local_experts", "num_experts", maximum=4096)
        used = config.integer("num_experts_per_tok", default=8, maximum=n_expert)
        return {"n_expert": n_expert, "n_expert_used": used}

    def notes(self) -> Iterator[str]:
        yield from super().notes()
        if self.tied:
            yield "llama.cpp cannot load this file: it wants an output matrix apart from the embedding"

    def attention(self, hf: str, blk: str) -> Iterator[Row]:
        yield from Olmo2.attention(self, hf, blk)  # type: ignore[arg-type]

    def feed_forward(self, hf: str, blk: str, i: int) -> Iterator[Row]:
        hf = hf.removesuffix("mlp.") + "block_sparse_moe."
        sizes = self.n_expert, self.n_embd, self.n_ff, 0
        yield from routed_experts(hf, blk, *sizes, "e_score_correction_bias", NUMBERED)
