"""AFMoE: gated attention, windows and positions on three layers of four, norms around all parts, experts. Of Arcee."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from hybrid.quant.ggml.families.afmoe import AfmoeHparams
from hybrid.quant.ggml.families.hparams import by_period

from ..checkpoint import Config
from .blocks import PROJECTIONS, attention_bias_notes, read_layers, stacked_experts, swiglu
from .dots1 import Dots1
from .family import Row, row
from .llama import LLAMA, Llama
from .qwen2 import Qwen3
from .windows import read_layer_types, read_window, window_values, windows_of

PERIOD = 4  # llama.cpp has no positions on the last of every 4 layers


@dataclass(frozen=True)
class Afmoe(Dots1):
    """One model of Trinity. Only layers with a window have positions."""

    arch = "afmoe"
    architectures = ("AfmoeForCausalLM",)
    hparams = AfmoeHparams
    order = (
        f"{LLAMA} .vocab_size n_rot window? local? n_expert n_expert_used gating n_ff_expert n_dense n_shared "
        "weights_scale weights_norm embedding_scale?"
    )
    pre = ("afmoe",)
    conditional: ClassVar[Mapping[str, str]] = {
        **Llama.conditional,
        "sliding_window": "where a layer has a window",
        "global_attn_every_n_layers": "where layer_types is absent",
    }
    usual_ctx, usual_eps = 16384, 1e-5
    usual_head = 128
    known_windows = True
    norms: ClassVar[dict[str, str]] = {
        "input_layernorm": "attn_norm",
        "post_attention_layernorm": "post_attention_norm",
        "pre_mlp_layernorm": "ffn_norm",
        "post_mlp_layernorm": "post_ffw_norm",
    }

    scaled: bool  # the embedding, by the root of its length

    @classmethod
    def read_windows(cls, config: Config, n_layer: int) -> tuple[int, ...]:
        period = config.integer("global_attn_every_n_layers", default=PERIOD)
        local = read_layer_types(config, n_layer) or by_period(period, n_layer)
        return windows_of(config, read_window(config, 1024), local)

    @classmethod
    def read_more(cls, config: Config) -> dict[str, Any]:
        config.expects("score_func", "sigmoid")
        config.expects("route_norm", True)
        for key in ("n_group", "topk_group"):
            config.expects(key, 1)
        n_expert = config.integer("num_experts", default=64, maximum=4096)
        return {
            "n_dense": config.integer("num_dense_layers", default=1, minimum=0, maximum=read_layers(config)),
            "n_expert": n_expert,
            "n_expert_used": config.integer("num_experts_per_tok", default=6, maximum=n_expert),
            "groups": (1, 1),
            "n_ff_expert": config.integer("moe_intermediate_size", default=1408),
            "n_shared": config.integer("num_shared_experts", default=2),
            "weights_norm": True,
            "weights_scale": config.number("route_scale", default=1.0),
            "scaled": config.boolean("mup_enabled", default=False),
        }

    def values(self) -> dict[str, Any]:
        window = max(self.windows)
        return super().values() | {
            **window_values(window, self.windows),
            "local": [size > 0 for size in self.windows],
            "embedding_scale": None if self.scaled else 1.0,
        }

    def notes(self) -> Iterator[str]:
        yield from self.scaling.notes
        yield from attention_bias_notes(self.attention_bias)
        if not self.scaled:
            yield "llama.cpp multiplies the embedding with the root of its length, here it is not: its results differ"
        if tuple(size > 0 for size in self.windows) != by_period(PERIOD, self.n_layer):
            yield "llama.cpp takes every fourth layer, and no other, to have no positions: its results differ"

    def attention(self, hf: str, blk: str) -> Iterator[Row]:
        yield from super().attention(hf, blk)
        heads = self.heads
        yield row(hf + "gate_proj.weight", blk + "attn_gate.weight", heads.n_head * heads.d_head, self.n_embd)

    def feed_forward(self, hf: str, blk: str, i: int) -> Iterator[Row]:
        if i < self.n_dense:
            yield from Qwen3.feed_forward(self, hf, blk, i)
            return
        n, n_ff, n_expert = self.n_embd, self.n_ff_expert, self.n_expert
        yield row(hf + "router.gate.weight", blk + "ffn_gate_inp.weight", n_expert, n)
        yield row(hf + "expert_bias", blk + "exp_probs_b.bias", n_expert)
        yield from stacked_experts(hf + "experts.", blk, n_expert, n, n_ff, PROJECTIONS)
        yield from swiglu(hf + "shared_experts.", blk, n, self.n_shared * n_ff, "_shexp")
