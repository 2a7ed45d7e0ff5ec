"""Ling 2.0: GLM-4.5 with queries, keys and values in one matrix; on most layers of its linear models lightning
attention with RoPE. arXiv:2510.22115, arXiv:2510.19338"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from hybrid.quant.ggml.families.bailingmoe2 import BailingLinearHparams
from hybrid.quant.ggml.families.glm4_moe import Glm4MoeHparams

from ..checkpoint import Config
from ..transforms import Transform
from .blocks import MAX_LAYERS, Heads, read_layers, read_turned, routed_experts, swiglu
from .dots1 import ROUTED
from .experts import read_expert_groups
from .family import Family, Row, row
from .glm4_moe import Glm4Moe
from .lightning import decay_row, slopes
from .llama import LLAMA, Llama
from .unused_fields import HEADS

LING = f"{LLAMA} n_rot {ROUTED} .expert_shared_feed_forward_length=n_ff_expert"  # words of Family.order


@dataclass(frozen=True)
class BailingMoe2(Glm4Moe):
    """One model of Ling or Ring 2.0."""

    arch = "bailingmoe2"
    architectures: ClassVar[tuple[str, ...]] = ("BailingMoeV2ForCausalLM",)
    hparams: ClassVar[type[Any]] = Glm4MoeHparams
    order = f"{LING} .vocab_size n_ahead?"
    embedding = "model.word_embeddings.weight"
    pre: ClassVar[tuple[str, ...]] = ("bailingmoe2", "bailingmoe")
    without_effect: ClassVar[Mapping[str, str]] = {
        **HEADS,
        **dict.fromkeys(("mtp_loss_scaling_factor", "output_dropout", "seq_aux"), "only training"),
        "max_window_layers": "no layer has a window",
        "router_dtype": "routers compute in float32",
        "use_rmsnorm": "all norms are RMS norms",
    }
    usual_ctx, usual_eps, usual_theta = 32768, 1e-6, 6e5
    usual_dense = 0
    routed: ClassVar[tuple[str, ...]] = ("num_experts",)  # spellings
    shared: ClassVar[tuple[str, ...]] = ("num_shared_experts",)
    norms: ClassVar[dict[str, str]] = Llama.norms
    head_norm = ("final_layernorm.weight", "layer_output_norm.weight")

    @classmethod
    def read_turned(cls, config: Config, heads: Heads) -> int:
        n_rot = super().read_turned(config, heads)
        config.expects("rotary_dim", n_rot)
        return n_rot

    @classmethod
    def read_more(cls, config: Config) -> dict[str, Any]:
        expect_usual(config)
        n_expert, n_ff = config.integer(*cls.routed, maximum=4096), config.integer("moe_intermediate_size")
        config.expects("moe_shared_expert_intermediate_size", n_ff)
        n_used = config.integer("num_experts_per_tok", minimum=2, maximum=n_expert)
        return {
            "n_dense": config.integer("first_k_dense_replace", default=cls.usual_dense, minimum=0, maximum=MAX_LAYERS),
            "n_expert": n_expert,
            "n_expert_used": n_used,
            "groups": read_expert_groups(config, n_expert, n_used),
            "n_ff_expert": n_ff,
            "n_shared": config.integer(*cls.shared),
            "weights_norm": True,
            "weights_scale": config.number("routed_scaling_factor", default=2.5),
            "normed": True,
            "qkv_bias": False,
        }

    def notes(self) -> Iterator[str]:
        yield from super().notes()
        if self.heads.n_head * self.heads.d_head != self.n_embd:
            yield "llama.cpp cannot load this file: it wants heads that together are as wide as the model"
        if self.tied:
            yield "llama.cpp cannot load this file: it wants an output matrix apart from the embedding"

    def attention(self, hf: str, blk: str) -> Iterator[Row]:
        yield from fused(mixer_of(hf), blk, self.n_embd, self.heads, self.heads.n_kv)

    def feed_forward(self, hf: str, blk: str, i: int) -> Iterator[Row]:
        if i < self.n_dense:
            yield from swiglu(hf, blk, self.n_embd, self.n_ff)
        else:
            sizes = self.n_expert, self.n_embd, self.n_ff_expert, self.n_shared
            yield from routed_experts(hf, blk, *sizes, "gate.expert_bias")


@dataclass(frozen=True)
class SarvamMoe(BailingMoe2):
    """One model of Sarvam 30B: RoPE rotates whole heads. Of sarvamai."""

    architectures = ("SarvamMoEForCausalLM",)
    pre = ()
    without_effect: ClassVar[Mapping[str, str]] = {
        **BailingMoe2.without_effect,
        "num_mtp_layers": HEADS["num_mtp_layers"],
    }
    usual_ctx, usual_theta = 131072, 8e6
    usual_dense = 1
    usual_head = 64
    routed = ("n_routed_experts", "num_experts", "num_local_experts")
    shared = ("n_shared_experts", "num_shared_experts")

    @classmethod
    def read_turned(cls, config: Config, heads: Heads) -> int:
        config.expects("attention_bias", False)
        return read_turned(config, heads.d_head, 1.0, heads.named(config))

    def feed_forward(self, hf: str, blk: str, i: int) -> Iterator[Row]:
        for each in super().feed_forward(hf, blk, i):
            is_bias = each.target.endswith("exp_probs_b.bias")
            yield replace(each, transform=_without_mean(self.n_expert)) if is_bias else each


def _without_mean(n: int) -> Transform:
    """Subtracts the mean of n values, as llama.cpp's converter does: no choice of experts changes."""

    def apply(x: np.ndarray, _: int) -> np.ndarray:
        centered: np.ndarray = x - x.mean(dtype=np.float32)
        return centered

    return Transform("less the mean", apply, arithmetic=True, unit=n)


@dataclass(frozen=True)
class BailingLinear(BailingMoe2):
    """One linear model of Ling or Ring 2.0."""

    arch = "bailingmoe-linear"
    architectures = ("BailingMoeLinearV2ForCausalLM", "BailingMoeLinearForCausalLM")
    hparams = BailingLinearHparams
    order = f"{LING} .vocab_size n_ahead? n_norm_group"
    in_llama_cpp = False
    without_effect: ClassVar[Mapping[str, str]] = {
        **BailingMoe2.without_effect,
        "linear_backend": "only how lightning attention is computed",
    }

    lightning: tuple[bool, ...] = ()  # per layer
    n_norm_group: int = 1

    @classmethod
    def read_more(cls, config: Config) -> dict[str, Any]:
        heads = Heads.read(config, config.integer("hidden_size"))
        return {**super().read_more(config), **read_lightning(config, heads)}

    def values(self) -> dict[str, Any]:
        kinds = [not there for there in self.lightning] + [True] * self.n_heads_ahead
        return {**super().values(), "n_head_kv": self.heads.per_layer(kinds)}

    def notes(self) -> Iterator[str]:
        yield from self.scaling.notes
        yield from Family.notes(self)

    def attention(self, hf: str, blk: str) -> Iterator[Row]:
        i = int(blk.split(".")[1])
        if i < self.n_layer and self.lightning[i]:
            yield from lightning_rows(mixer_of(hf), blk, self.n_embd, self.heads, i, self.n_layer)
        else:
            yield from super().attention(hf, blk)


def expect_usual(config: Config) -> None:
    """UnsupportedError names a field with a value that no published model has."""
    for key, expected in {
        **dict.fromkeys(("use_bias", "use_qkv_bias", "norm_head", "multi_gate"), False),
        **dict.fromkeys(("use_qk_norm", "norm_topk_prob", "moe_router_enable_expert_bias"), True),
        **dict.fromkeys(("score_function", "scoring_func"), "sigmoid"),
        "topk_method": "noaux_tc",
        "router_type": "topN",
    }.items():
        config.expects(key, expected)


def mixer_of(hf: str) -> str:
    return hf.removesuffix("self_attn.") + "attention."


def fused(hf: str, blk: str, n: int, heads: Heads, n_kv: int) -> Iterator[Row]:
    """Tensors of attention, or of lightning attention, with n_kv heads of keys."""
    n_q = heads.n_head * heads.d_head
    yield row(hf + "query_key_value.weight", blk + "attn_qkv.weight", n_q + 2 * n_kv * heads.d_head, n)
    yield row(hf + "dense.weight", blk + "attn_output.weight", n, n_q)
    yield from heads.norm_rows(hf, blk, ("query_layernorm", "key_layernorm"))


def lightning_rows(hf: str, blk: str, n: int, heads: Heads, i: int, n_layer: int) -> Iterator[Row]:
    """Tensors of layer i with lightning attention. Its decays are as in the published code, which subtracts 1 from the
    number of a layer that it counts from 0."""
    yield from fused(hf, blk, n, heads, heads.n_head)
    n_inner = heads.n_head * heads.d_head
    yield row(hf + "g_proj.weight", blk + "attn_gate.weight", n_inner, n)
    yield row(hf + "g_norm.weight", blk + "attn_norm_2.weight", n_inner)
    yield decay_row(blk, slopes(heads.n_head) * (1 - (i - 1) / (n_layer - 1) + 1e-5))


def read_lightning(config: Config, heads: Heads) -> dict[str, Any]:
    """Layers with lightning attention, all but the last of every group and those after the last whole group, and groups
    of the norm after it."""
    for key in ("linear_silu", "use_linear_silu"):
        config.expects(key, False)
    config.expects("linear_rope", True)
    n_layer, size, n_inner = read_layers(config), config.integer("layer_group_size"), heads.n_head * heads.d_head
    whole = n_layer // size * size
    n_norm_group = config.integer("group_norm_size")
    if n_inner % n_norm_group:
        raise config.wrong("group_norm_size", f"a divisor of the {n_inner} values of all heads")
    return {
        "lightning": tuple((i + 1) % size != 0 and i < whole for i in range(n_layer)),
        "n_norm_group": n_norm_group,
    }
