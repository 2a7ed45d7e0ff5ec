"""Ling 3.0: Kimi's delta rule with a bounded decay, gated latent attention, experts in groups. Of inclusionAI."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Self

from hybrid.quant.ggml.families.bailingmoe3 import BailingMoe3Hparams

from ..checkpoint import Config
from ..transforms import POSITIVE_EXP
from .blocks import read_kinds, read_plain_rope, routed_experts
from .experts import read_dense, read_expert_groups
from .family import Row, Shapes, row
from .heads import Head, numbered_heads
from .kimi_linear import KINDS, KimiLinear
from .latent import Latent, require_equal_heads
from .unused_fields import HEADS, mtp_layers, read_mtp


@dataclass(frozen=True)
class BailingMoe3(KimiLinear):
    """One model of Ling 3.0."""

    arch = "bailingmoe3"
    architectures: ClassVar[tuple[str, ...]] = ("BailingHybridForCausalLM", "BailingMoeV3ForCausalLM")
    hparams = BailingMoe3Hparams
    order = f"{KimiLinear.order} freq_base safe_gate lowest .expert_shared_feed_forward_length n_ahead?"
    safe_gate = True
    embedding = "model.word_embeddings.weight"
    mixer = "attention."
    mixer_out = "dense.weight"
    pre = ("bailingmoe2", "bailingmoe")
    dropped: ClassVar[tuple[str, ...]] = ()
    without_effect: ClassVar[Mapping[str, str]] = {
        **HEADS,
        "mtp_loss_scaling_factor": "only training",
        "qk_head_dim": "the sum of its parts",
    }
    conditional: ClassVar[Mapping[str, str]] = {
        **KimiLinear.conditional,
        "layer_group_size": "only without layer_types, as in transformers",
        "head_dim": "only without linear_head_dim, as in transformers",
    }

    freq_base: float
    lowest: float  # logarithm of the lowest decay
    heads_ahead: tuple[Head, ...]  # each with attention and experts

    @classmethod
    def read(cls, config: Config, shapes: Shapes) -> Self:
        _refuse(config)
        sizes = cls.sizes(config, shapes, spelled={"n_ctx": ("model_max_length", "max_position_embeddings")}, eps=1e-6)
        n_layer, n_head = sizes["n_layer"], config.integer("num_attention_heads")
        require_equal_heads(config, n_head)
        n_expert = config.integer("num_experts", "num_local_experts", maximum=4096)
        n_used = config.integer("num_experts_per_token", "num_experts_per_tok", maximum=n_expert)
        n_ff, n_shared = config.integer("moe_intermediate_size"), _n_shared(config)
        if config.integer("moe_shared_expert_intermediate_size", default=n_shared * n_ff) != n_shared * n_ff:
            raise config.wrong("moe_shared_expert_intermediate_size", f"{n_shared * n_ff}, of {n_shared} experts")
        heads = numbered_heads(shapes, n_layer, "final_layernorm.weight", "layer_output_norm.weight")
        return cls(
            **sizes,
            n_ff=config.integer("intermediate_size"),
            n_head=n_head,
            latent=Latent.read(config),
            attention=(*_attention(config, n_layer), *[True] * len(heads)),
            n_dense=read_dense(config, n_layer, 2),
            d_conv=config.integer("linear_conv_kernel_dim", "short_conv_kernel_size", default=4, minimum=2),
            n_kda=config.integer("linear_num_heads", default=n_head),
            d_kda=config.integer("linear_head_dim" if "linear_head_dim" in config else "head_dim", default=128),
            n_expert=n_expert,
            n_expert_used=n_used,
            groups=_groups(config, n_expert, n_used),
            n_ff_expert=n_ff,
            n_shared=n_shared,
            weights_norm=config.boolean("moe_renormalize", "norm_topk_prob", default=True),
            weights_scale=config.number("routed_scaling_factor", default=2.5),
            n_mtp=max(read_mtp(config), len(heads)),
            freq_base=read_plain_rope(config, 6e6),
            lowest=_below_zero(config, "kda_lower_bound", -5.0),
            heads_ahead=heads,
        )

    def left_out(self) -> tuple[str, ...]:
        return (*self.dropped, *mtp_layers(self.blocks_in_file, self.n_mtp - len(self.heads_ahead)))

    def values(self) -> dict[str, Any]:
        return {**super().values(), "expert_shared_feed_forward_length": self.n_shared * self.n_ff_expert}

    def notes(self) -> Iterator[str]:
        yield from self.shared_notes()

    def canonical(self, name: str) -> str:
        return name

    def rows(self) -> Iterator[Row]:
        yield from super().rows()
        for i, head in enumerate(self.heads_ahead):
            yield from head.rows(f"blk.{self.n_layer + i}.", self.n_embd, self.n_vocab)
        for i in range(self.blocks_in_file):
            if self.attention[i]:
                name = f"model.layers.{i}.attention.g_proj.weight"
                yield row(name, f"blk.{i}.attn_gate.weight", self.n_head, self.n_embd)

    def gates(self, hf: str, blk: str, n_inner: int) -> Iterator[Row]:
        yield row(hf + "f_proj.weight", blk + "ssm_f_a.weight", n_inner, self.n_embd)
        yield row(hf + "g_proj.weight", blk + "ssm_g_a.weight", n_inner, self.n_embd)
        yield row(hf + "A_log", blk + "ssm_a", self.n_kda, 1, source_shape=(self.n_kda,), transform=POSITIVE_EXP)

    def sparse(self, hf: str, blk: str) -> Iterator[Row]:
        sizes = self.n_expert, self.n_embd, self.n_ff_expert, self.n_shared
        yield from routed_experts(hf + "mlp.", blk, *sizes, "gate.expert_bias")


def _refuse(config: Config) -> None:
    """UnsupportedError names a setting that is not supported."""
    expected = {
        "hidden_act": "silu",
        "attention_bias": False,
        "q_lora_rank": None,
        "kda_safe_gate": True,
        "no_kda_lora": True,
        "gated_attention_proj_granularity_type": "head_wise",
        "score_function": "sigmoid",
        "moe_router_enable_expert_bias": True,
        "expert_swiglu_limit_list": [],
        "share_expert_swiglu_limit_list": [],
    }
    for key, value in expected.items():
        config.expects(key, value)


def _n_shared(config: Config) -> int:
    return config.integer("num_shared_experts", "n_shared_experts", default=1)


def _groups(config: Config, n_expert: int, n_used: int) -> tuple[int, int]:
    """Expert groups. Transformers' defaults are 8 and 4, which no small model has: the keys must be present."""
    names = ("num_expert_group", "n_group")
    config.integer(*names)
    config.integer("topk_group")
    return read_expert_groups(config, n_expert, n_used, *names)


def _attention(config: Config, n_layer: int) -> tuple[bool, ...]:
    """Per layer, whether it has attention: the last layer of every group has."""
    if "layer_types" in config:
        return tuple(kind == "full_attention" for kind in read_kinds(config, KINDS, "layer_types", n_layer=n_layer))
    size = config.integer("layer_group_size", default=6)
    return tuple((i + 1) % size == 0 for i in range(n_layer))


def _below_zero(config: Config, key: str, default: float) -> float:
    """A negative number."""
    value = config.number(key, default=default, positive=False)
    if value >= 0:
        raise config.wrong(key, "a negative number")
    return value
