"""DeepSeekMoE: Llama with experts after the first layers, beside shared ones. arXiv:2401.06066"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from hybrid.quant.ggml.families.deepseek import DeepSeekHparams
from hybrid.quant.ggml.families.experts import SOFTMAX

from ..checkpoint import Config
from .blocks import read_layers, routed_experts
from .experts import read_dense
from .family import Row
from .llama import LLAMA, Llama
from .rope import UNSCALED


@dataclass(frozen=True)
class DeepSeek(Llama):
    """One model of DeepSeek-MoE-16B, or the text model of DeepSeek-OCR and of Aria."""

    arch = "deepseek"
    architectures = ("DeepseekForCausalLM",)
    hparams = DeepSeekHparams
    order = (
        f"{LLAMA.replace(' eps ', ' eps n_expert_used gating ', 1)} n_rot {UNSCALED} n_dense .vocab_size n_ff_expert "
        "weights_scale n_expert n_shared weights_norm?"
    )
    pre = ("deepseek-llm",)
    conditional: ClassVar[Mapping[str, str]] = {
        **Llama.conditional,
        "first_k_dense_replace": "only without mlp_layer_types",
    }
    without_effect: ClassVar[Mapping[str, str]] = {
        **dict.fromkeys(("aux_loss_alpha", "seq_aux"), "only training"),
        "ep_size": "only how it is computed",
    }

    n_dense: int  # first layers without experts
    n_expert: int
    n_expert_used: int
    n_ff_expert: int
    n_shared: int
    weights_norm: bool
    weights_scale: float

    @classmethod
    def read_biases(cls, config: Config) -> dict[str, Any]:
        config.expects("mlp_bias", False)
        return super().read_biases(config)

    @classmethod
    def read_more(cls, config: Config) -> dict[str, Any]:
        for key, values in {
            "scoring_func": ("softmax",),
            "moe_layer_freq": (1,),
            "topk_method": ("greedy",),
            "n_group": (1,),
            "topk_group": (1,),
        }.items():
            config.expects(key, *values)
        n_expert = config.integer("n_routed_experts", maximum=4096)
        return {
            "n_dense": read_dense(config, read_layers(config), 0),
            "n_expert": n_expert,
            "n_expert_used": config.integer("num_experts_per_tok", maximum=n_expert),
            "n_ff_expert": config.integer("moe_intermediate_size"),
            "n_shared": config.integer("n_shared_experts", default=0, minimum=0),
            "weights_norm": config.boolean("norm_topk_prob", default=False),
            "weights_scale": config.number("routed_scaling_factor", default=1.0),
        }

    def values(self) -> dict[str, Any]:
        return super().values() | {"gating": SOFTMAX, "weights_norm": self.weights_norm or None}

    def notes(self) -> Iterator[str]:
        yield from super().notes()
        if self.weights_norm:
            yield "llama.cpp takes norm_topk_prob = false: it has no key for it in this architecture"
        if self.attention_bias or self.heads.n_head * self.heads.d_head != self.n_embd:
            yield (
                "llama.cpp cannot load this file: in this architecture heads together are as wide as the model, and "
                "what attention returns has no bias"
            )

    def feed_forward(self, hf: str, blk: str, i: int) -> Iterator[Row]:
        if i < self.n_dense:
            yield from super().feed_forward(hf, blk, i)
        else:
            yield from routed_experts(hf, blk, self.n_expert, self.n_embd, self.n_ff_expert, self.n_shared, "")
