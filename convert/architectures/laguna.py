"""Laguna: softplus gates after attention, heads by the layer, experts as in DeepSeek-V3. Of Poolside."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from hybrid.quant.ggml.families.experts import SIGMOID
from hybrid.quant.ggml.families.laguna import LagunaHparams

from ..checkpoint import Config
from .blocks import Heads, read_layers, routed_experts, swiglu
from .experts import read_dense
from .family import Row, row
from .layer_ropes import ONLY_ROPE_PARAMETERS, read_part, rope_of_kind
from .llama import LLAMA
from .mellum import Mellum
from .qwen2 import Qwen3


@dataclass(frozen=True)
class Laguna(Mellum):
    """One model of Laguna."""

    arch = "laguna"
    architectures = ("LagunaForCausalLM",)
    hparams = LagunaHparams
    order = (
        f"{LLAMA.replace('n_head', 'n_head=n_heads', 1)} freq_base_local=local_theta n_expert n_expert_used "
        ".vocab_size window? local? n_ff_expert n_ff_shared weights_norm weights_scale gating n_dense n_rot "
        "n_rot_local=local_rot"
    )
    pre = ("laguna",)
    without_effect: ClassVar[Mapping[str, str]] = {
        **ONLY_ROPE_PARAMETERS,
        "gating_types": "transformers takes gating for all layers",
    }
    usual_window = 512
    usual_ropes: ClassVar[Mapping[str, Any]] = {
        "full_attention": {"rope_theta": 500000.0, "partial_rotary_factor": 0.5},
        "sliding_attention": {"rope_theta": 10000.0},
    }
    gating = SIGMOID

    n_heads: tuple[int, ...]  # of queries, per layer
    local_rot: int | None  # values of a head that RoPE rotates where there is a window
    each: bool  # gates of values, otherwise of heads
    n_ff_shared: int
    weights_scale: float

    @classmethod
    def read_turned(cls, config: Config, heads: Heads) -> int:
        return read_part(cls.read_rope(config)[0], heads.d_head)

    @classmethod
    def read_local_rope(cls, config: Config, there: bool) -> dict[str, Any]:
        n_embd = config.integer("hidden_size")
        d_head = Heads.read(config, n_embd, usual=cls.usual_head).d_head
        rope = rope_of_kind(config, "sliding_attention", cls.usual_ropes) if there else None
        return super().read_local_rope(config, there) | {"local_rot": read_part(rope, d_head) if rope else None}

    @classmethod
    def read_moe(cls, config: Config, n_layer: int) -> list[bool]:
        n_dense = read_dense(config, n_layer, 1)
        return [i >= n_dense for i in range(n_layer)]

    @classmethod
    def read_more(cls, config: Config) -> dict[str, Any]:
        config.expects("norm_topk_prob", True)
        config.expects("moe_apply_router_weight_on_input", False)
        config.expects("moe_router_logit_softcapping", 0.0, 0)
        config.expects("gating", True, "per-head", "per-element")
        return {
            **super().read_more(config),
            "n_heads": _read_heads(config),
            "each": config.get("gating") == "per-element",
            "n_ff_shared": config.integer("shared_expert_intermediate_size", default=512),
            "weights_scale": config.number("moe_routed_scaling_factor", default=1.0),
        }

    @property
    def n_dense(self) -> int:
        """The number of first layers without experts."""
        return self.moe.count(False)

    def notes(self) -> Iterator[str]:
        yield from Qwen3.notes(self)

    def layer_attention(self, hf: str, blk: str, i: int) -> Iterator[Row]:
        heads, n_head = replace(self.heads, n_head=self.n_heads[i]), self.n_heads[i]
        yield from heads.rows(hf, blk, self.n_embd, bias=self.attention_bias)
        yield from heads.norm_rows(hf, blk)
        n_gate = n_head * heads.d_head if self.each else n_head
        yield row(hf + "g_proj.weight", blk + "attn_gate.weight", n_gate, self.n_embd)

    def feed_forward(self, hf: str, blk: str, i: int) -> Iterator[Row]:
        if i < self.n_dense:
            yield from swiglu(hf, blk, self.n_embd, self.n_ff)
            return
        sizes = self.n_expert, self.n_embd, self.n_ff_expert
        yield from routed_experts(hf, blk, *sizes, 0, "experts.e_score_correction_bias")
        yield from swiglu(hf + "shared_expert.", blk, self.n_embd, self.n_ff_shared, "_shexp")


def _read_heads(config: Config) -> tuple[int, ...]:
    """The number of heads of queries, per layer."""
    key, n_layer = "num_attention_heads_per_layer", read_layers(config)
    n_head = config.integer("num_attention_heads")
    n_kv, each = config.integer("num_key_value_heads", default=n_head), config.get(key)
    if each is None:
        return (n_head,) * n_layer
    right = isinstance(each, list) and len(each) == n_layer
    if not right or not all(type(n) is int and 0 < n <= 1 << 16 and n % n_kv == 0 for n in each):
        raise config.wrong(key, f"{n_layer} numbers of heads, multiples of the {n_kv} heads of keys")
    return tuple(each)
