"""Hy3: Qwen3 with experts beside a shared one after the first layers, chosen by sigmoids plus a bias. Of Tencent."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

from hybrid.quant.ggml.families.experts import SIGMOID
from hybrid.quant.ggml.families.hy_v3 import HyV3Hparams

from ..checkpoint import Config
from .blocks import PROJECTIONS, read_layers, stacked_experts, swiglu
from .experts import read_dense
from .family import Row, Shapes, row
from .heads import Head, numbered_heads
from .llama import LLAMA, Llama
from .qwen2 import Qwen3
from .unused_fields import HEADS

# names of transformers -> published names
_RENAMED = {
    ".mlp.gate.weight": ".mlp.router.gate.weight",
    ".mlp.e_score_correction_bias": ".mlp.expert_bias",
    ".mlp.shared_experts.": ".mlp.shared_mlp.",
}


@dataclass(frozen=True)
class HyV3(Qwen3):
    """One model of Hy3. Heads that guess tokens are numbered after the layers."""

    arch = "hy_v3"
    architectures = ("HYV3ForCausalLM",)
    hparams = HyV3Hparams
    order = f"{LLAMA} n_expert n_expert_used n_ff_expert n_ff_shared weights_norm weights_scale gating n_ahead?"
    pre = ("hunyuan-dense", "hunyuan")
    conditional: ClassVar[Mapping[str, str]] = {
        **Llama.conditional,
        "first_k_dense_replace": "only without mlp_layer_types",
    }
    without_effect: ClassVar[Mapping[str, str]] = {
        **HEADS,
        **dict.fromkeys(
            ("enable_lm_head_fp32", "enable_moe_fp32_combine", "enable_attention_fp32_softmax", "use_grouped_mm"),
            "only how it is computed: here sums are f32",
        ),
    }
    usual_ctx, usual_eps, usual_theta, usual_head = 131072, 1e-5, 11158840.0, 128
    gating = SIGMOID
    weights_norm = True

    n_dense: int  # first layers without experts
    n_expert: int
    n_expert_used: int
    n_ff_expert: int
    n_shared: int
    weights_scale: float
    heads_ahead: tuple[Head, ...] = ()

    @classmethod
    def read(cls, config: Config, shapes: Shapes) -> Self:
        for key in ("qk_norm", "route_norm", "moe_router_use_sigmoid", "moe_router_enable_expert_bias"):
            config.expects(key, True)
        config.expects("mlp_bias", False)
        config.expects("expert_hidden_dim", config.integer("moe_intermediate_size", default=1536))
        model = super().read(config, shapes)
        return replace(model, heads_ahead=numbered_heads(shapes, model.n_layer, "final_layernorm.weight"))

    @classmethod
    def read_windows(cls, config: Config, n_layer: int) -> tuple[int, ...]:
        return (0,) * n_layer

    @classmethod
    def read_more(cls, config: Config) -> dict[str, Any]:
        n_expert = config.integer("num_experts", "num_local_experts", default=192, maximum=4096)
        return {
            "n_dense": read_dense(config, read_layers(config), 1),
            "n_expert": n_expert,
            "n_expert_used": config.integer("num_experts_per_tok", default=8, maximum=n_expert),
            "n_ff_expert": config.integer("moe_intermediate_size", default=1536),
            "n_shared": config.integer("num_shared_experts", default=1),
            "weights_scale": config.number("router_scaling_factor", default=2.826),
        }

    def values(self) -> dict[str, Any]:
        return super().values() | {"n_ff_shared": self.n_shared * self.n_ff_expert}

    def canonical(self, name: str) -> str:
        name = super().canonical(name)
        for old, new in _RENAMED.items():
            name = name.replace(old, new)
        return name

    def left_out(self) -> tuple[str, ...]:
        # heads that the file leaves out, which are numbered after its blocks
        return (*self.dropped, *(f"model.layers.{self.blocks_in_file + i}." for i in range(2)))

    def feed_forward(self, hf: str, blk: str, i: int) -> Iterator[Row]:
        n = self.n_embd
        if i < self.n_dense:
            yield from super().feed_forward(hf, blk, i)
            return
        yield row(hf + "router.gate.weight", blk + "ffn_gate_inp.weight", self.n_expert, n)
        yield row(hf + "expert_bias", blk + "exp_probs_b", self.n_expert)
        yield from stacked_experts(hf + "experts.", blk, self.n_expert, n, self.n_ff_expert, PROJECTIONS)
        yield from swiglu(hf + "shared_mlp.", blk, n, self.n_shared * self.n_ff_expert, "_shexp")
