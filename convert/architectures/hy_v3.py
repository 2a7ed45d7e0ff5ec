"""Hy3: Qwen3 with experts as in DeepSeek-V3 after the first layers. Of Tencent."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from hybrid.quant.ggml.families.hy_v3 import HyV3Hparams

from ..checkpoint import Config
from .blocks import PROJECTIONS, attention_bias_notes, read_layers, stacked_experts, swiglu
from .dots1 import Dots1
from .experts import read_dense
from .family import Row, row
from .llama import LLAMA, Llama
from .qwen2 import Qwen3
from .unused_fields import MTP, mtp_layers

MOST_MTP = 64  # layers that guess tokens ahead


@dataclass(frozen=True)
class HyV3(Dots1):
    """One model. Layers that guess tokens ahead are left out."""

    arch = "hy_v3"
    architectures = ("HYV3ForCausalLM",)
    hparams = HyV3Hparams
    order = f"{LLAMA} n_expert n_expert_used gating n_ff_expert n_ff_shared weights_scale weights_norm"
    pre = ("hunyuan-dense",)
    conditional: ClassVar[Mapping[str, str]] = {
        **Llama.conditional,
        "first_k_dense_replace": "only without mlp_layer_types",
    }
    without_effect: ClassVar[Mapping[str, str]] = {**MTP, "enable_moe_fp32_combine": "only how sums are rounded"}
    usual_ctx, usual_eps, usual_theta = 131072, 1e-5, 11158840.0
    usual_head = 128

    @classmethod
    def read_windows(cls, config: Config, n_layer: int) -> tuple[int, ...]:
        return (0,) * n_layer

    @classmethod
    def read_biases(cls, config: Config) -> dict[str, Any]:
        config.expects("mlp_bias", False)
        return super().read_biases(config)

    @classmethod
    def read_more(cls, config: Config) -> dict[str, Any]:
        config.expects("route_norm", True)
        n_expert = config.integer("num_experts", "num_local_experts", default=192, maximum=4096)
        return {
            "n_dense": read_dense(config, read_layers(config), 1),
            "n_expert": n_expert,
            "n_expert_used": config.integer("num_experts_per_tok", default=8, maximum=n_expert),
            "groups": (1, 1),
            "n_ff_expert": config.integer("moe_intermediate_size", default=1536),
            "n_shared": config.integer("num_shared_experts", default=1),
            "weights_norm": True,
            "weights_scale": config.number("router_scaling_factor", default=2.826),
        }

    def values(self) -> dict[str, Any]:
        return super().values() | {"n_ff_shared": self.n_shared * self.n_ff_expert}

    def left_out(self) -> tuple[str, ...]:
        return (*self.dropped, *mtp_layers(self.n_layer, MOST_MTP))

    def notes(self) -> Iterator[str]:
        yield from self.scaling.notes
        yield from attention_bias_notes(self.attention_bias)

    def canonical(self, name: str) -> str:
        # transformers' names of what published checkpoints have
        name = name.replace(".mlp.gate.", ".mlp.router.gate.").replace(".mlp.shared_experts.", ".mlp.shared_mlp.")
        return super().canonical(name.replace(".mlp.e_score_correction_bias", ".mlp.expert_bias"))

    def feed_forward(self, hf: str, blk: str, i: int) -> Iterator[Row]:
        if i < self.n_dense:
            yield from Qwen3.feed_forward(self, hf, blk, i)
            return
        n, n_ff, n_expert = self.n_embd, self.n_ff_expert, self.n_expert
        yield row(hf + "router.gate.weight", blk + "ffn_gate_inp.weight", n_expert, n)
        yield row(hf + "expert_bias", blk + "exp_probs_b", n_expert)
        yield from stacked_experts(hf + "experts.", blk, n_expert, n, n_ff, PROJECTIONS)
        yield from swiglu(hf + "shared_mlp.", blk, n, self.n_shared * n_ff, "_shexp")
