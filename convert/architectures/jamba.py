"""Jamba: attention every few layers, Mamba-1 elsewhere, mixture of experts on some layers. arXiv:2403.19887"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Self

from hybrid.quant.ggml.types import FileType

from ..checkpoint import Config
from ..transforms import NEGATIVE_EXP
from .blocks import Heads, read_layers, size_keys, stacked_experts, swiglu, twice_as_wide
from .family import Family, Row, Shapes, row, vocabulary_rows


@dataclass(frozen=True)
class Jamba(Family):
    arch = "jamba"
    architectures = ("JambaForCausalLM",)

    n_vocab: int
    tied: bool
    n_layer: int
    n_ctx: int
    n_embd: int
    n_ff: int
    heads: Heads
    n_head_kv: tuple[int, ...]  # per layer; 0 marks a Mamba layer
    d_conv: int
    d_inner: int
    d_state: int
    dt_rank: int
    eps: float
    n_expert: int
    n_expert_used: int
    moe: tuple[bool, ...]  # per layer

    @classmethod
    def read(cls, config: Config, shapes: Shapes) -> Self:
        config.expects("hidden_act", "silu")
        config.expects("mamba_conv_bias", True)
        config.expects("mamba_proj_bias", False)
        config.expects("mamba_inner_layernorms", True)
        config.expects("sliding_window", None)
        n_layer = read_layers(config)
        n_embd = config.integer("hidden_size", "mamba_d_model")
        heads = Heads.read(config, n_embd, head_dim=False)
        attention = periodic(config, "attn_layer", n_layer)
        n_expert = config.integer("num_local_experts", "num_experts", maximum=4096)
        n_expert_used = config.integer("num_experts_per_tok", "num_experts_per_token")
        if n_expert_used > n_expert > 1:
            raise config.wrong("num_experts_per_tok", f"at most the {n_expert} experts")
        return cls(
            n_vocab=vocabulary_rows(config, shapes, "model.embed_tokens.weight"),
            tied=config.boolean("tie_word_embeddings", default=False),
            n_layer=n_layer,
            n_ctx=config.integer("max_position_embeddings", "n_ctx"),
            n_embd=n_embd,
            n_ff=config.integer("intermediate_size"),
            heads=heads,
            n_head_kv=heads.per_layer(attention),
            d_conv=config.integer("mamba_d_conv", default=4),
            d_inner=config.integer("mamba_expand") * n_embd,
            d_state=config.integer("mamba_d_state", default=16),
            dt_rank=rank(config, n_embd, "mamba_dt_rank"),
            eps=config.number("layer_norm_epsilon", "rms_norm_eps", default=1e-6),
            n_expert=n_expert,
            n_expert_used=min(n_expert_used, n_expert),
            moe=tuple(n_expert > 1 and is_moe for is_moe in periodic(config, "expert_layer", n_layer)),
        )

    def keys(self, file_type: FileType) -> Iterator[tuple[str, Any]]:
        yield from size_keys(self.n_layer, self.n_ctx, self.n_embd, self.n_ff, self.heads.n_head, self.n_head_kv)
        yield "ssm.conv_kernel", self.d_conv
        yield "ssm.inner_size", self.d_inner
        yield "ssm.state_size", self.d_state
        yield "ssm.time_step_rank", self.dt_rank
        yield "attention.layer_norm_rms_epsilon", self.eps
        yield "expert_count", self.n_expert
        yield "expert_used_count", self.n_expert_used
        yield "general.file_type", int(file_type)

    def notes(self) -> Iterator[str]:
        yield from twice_as_wide(self.d_inner, self.n_embd)

    def canonical(self, name: str) -> str:
        # Mini-Jamba: "moe" for the feed-forward part, an only expert on dense layers, another name for its norm.
        name = name.replace(".moe.", ".feed_forward.").replace(".pre_moe_layernorm.", ".pre_ff_layernorm.")
        if ".experts.0." in name and not self._is_moe(name):
            name = name.replace(".experts.0.", ".")
        return name

    def _is_moe(self, name: str) -> bool:
        layer = next((part for part in name.split(".") if part.isdecimal()), "")
        return layer != "" and len(layer) < 5 and int(layer) < self.n_layer and self.moe[int(layer)]

    def rows(self) -> Iterator[Row]:
        n = self.n_embd
        yield from self.outer_rows("model.embed_tokens.weight", "model.final_layernorm.weight")
        for i in range(self.n_layer):
            hf, blk = f"model.layers.{i}.", f"blk.{i}."
            yield row(hf + "input_layernorm.weight", blk + "attn_norm.weight", n)
            yield row(hf + "pre_ff_layernorm.weight", blk + "ffn_norm.weight", n)
            # no RoPE, so queries and keys stay as they are
            yield from self.heads.rows(hf + "self_attn.", blk, n) if self.n_head_kv[i] else self._mamba(hf, blk)
            yield from self._moe(hf, blk) if self.moe[i] else swiglu(hf + "feed_forward.", blk, n, self.n_ff)

    def _mamba(self, hf: str, blk: str) -> Iterator[Row]:
        yield from mamba1(hf + "mamba.", blk, self.n_embd, self.d_inner, self.d_state, self.dt_rank, self.d_conv)
        yield row(hf + "mamba.dt_layernorm.weight", blk + "ssm_dt_norm.weight", self.dt_rank)
        yield row(hf + "mamba.b_layernorm.weight", blk + "ssm_b_norm.weight", self.d_state)
        yield row(hf + "mamba.c_layernorm.weight", blk + "ssm_c_norm.weight", self.d_state)

    def _moe(self, hf: str, blk: str) -> Iterator[Row]:
        yield row(hf + "feed_forward.router.weight", blk + "ffn_gate_inp.weight", self.n_expert, self.n_embd)
        names = (("down", "down_proj"), ("gate", "gate_proj"), ("up", "up_proj"))
        yield from stacked_experts(hf + "feed_forward.experts.", blk, self.n_expert, self.n_embd, self.n_ff, names)


def mamba1(hf: str, blk: str, n_embd: int, d_inner: int, d_state: int, dt_rank: int, d_conv: int) -> Iterator[Row]:
    """The Mamba-1 layer that Jamba and Mamba share. in_proj holds [x | z], x_proj [dt | B | C] by rows."""
    yield row(hf + "in_proj.weight", blk + "ssm_in.weight", 2 * d_inner, n_embd)
    yield row(hf + "conv1d.weight", blk + "ssm_conv1d.weight", d_inner, d_conv, source_shape=(d_inner, 1, d_conv))
    yield row(hf + "conv1d.bias", blk + "ssm_conv1d.bias", d_inner)
    yield row(hf + "x_proj.weight", blk + "ssm_x.weight", dt_rank + 2 * d_state, d_inner)
    yield row(hf + "dt_proj.weight", blk + "ssm_dt.weight", d_inner, dt_rank)
    yield row(hf + "dt_proj.bias", blk + "ssm_dt.bias", d_inner)
    yield row(hf + "A_log", blk + "ssm_a", d_inner, d_state, transform=NEGATIVE_EXP)
    yield row(hf + "D", blk + "ssm_d", d_inner)
    yield row(hf + "out_proj.weight", blk + "ssm_out.weight", n_embd, d_inner)


def periodic(config: Config, prefix: str, n_layer: int) -> tuple[bool, ...]:
    """Per layer, whether it is one of those that `prefix`_period and `prefix`_offset choose."""
    period = config.integer(f"{prefix}_period")
    offset = config.integer(f"{prefix}_offset", minimum=0)
    if offset >= period:
        raise config.wrong(f"{prefix}_offset", f"less than {prefix}_period = {period}")
    return tuple(i % period == offset for i in range(n_layer))


def rank(config: Config, n_embd: int, *keys: str) -> int:
    """The rank of the time step; "auto" and an absent key stand for a sixteenth of the width, rounded up."""
    automatic = -(-n_embd // 16)
    return automatic if config.get(*keys) == "auto" else config.integer(*keys, default=automatic)
