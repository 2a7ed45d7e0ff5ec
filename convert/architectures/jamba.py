"""Jamba: attention every few layers, Mamba-1 elsewhere, mixture of experts on some layers. arXiv:2403.19887"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import ClassVar, Self

from hybrid.quant.ggml.families.jamba import JambaHparams

from ..checkpoint import Config
from .blocks import SILU, SIZES, Heads, stacked_experts, swiglu
from .decoder import Decoder
from .family import Row, Shapes, row
from .mamba import SCAN, Scan
from .unused_fields import LAYER_KINDS

KEYS = {
    "n_ctx": ("max_position_embeddings", "n_ctx"),
    "n_embd": ("hidden_size", "mamba_d_model"),
    "eps": ("rms_norm_eps", "layer_norm_epsilon"),
}
USED = ("num_experts_per_tok", "num_experts_per_token")


@dataclass(frozen=True)
class Jamba(Decoder):
    """One model."""

    arch = "jamba"
    architectures = ("JambaForCausalLM",)
    hparams = JambaHparams
    order = f"{SIZES} {SCAN} eps n_expert n_expert_used .general.file_type"
    conditional: ClassVar[Mapping[str, str]] = dict.fromkeys(
        ("num_experts_per_tok", "expert_layer_period", "expert_layer_offset"), "where num_experts is more than 1"
    )
    without_effect: ClassVar[Mapping[str, str]] = {
        **LAYER_KINDS,
        "calc_logits_for_entire_prompt": "only which logits transformers returns",
    }

    n_ff: int
    heads: Heads
    n_head_kv: tuple[int, ...]  # per layer; 0 marks a Mamba layer
    scan: Scan
    n_expert: int
    n_expert_used: int
    moe: tuple[bool, ...]  # per layer

    @classmethod
    def read(cls, config: Config, shapes: Shapes) -> Self:
        config.expects("hidden_act", *SILU)
        config.expects("mamba_inner_layernorms", True)
        config.expects("sliding_window", None)
        sizes = cls.sizes(config, shapes, spelled=KEYS)
        n_layer, n_embd = sizes["n_layer"], sizes["n_embd"]
        heads = Heads.read(config, n_embd, head_dim=False)
        attention = periodic(config, "attn_layer", n_layer, (8, 4))
        n_expert = config.integer("num_local_experts", "num_experts", maximum=4096)
        n_expert_used = config.integer(*USED)
        if n_expert_used > n_expert > 1:
            raise config.wrong(config.named(*USED), f"at most the {n_expert} experts")
        return cls(
            **sizes,
            n_ff=config.integer("intermediate_size"),
            heads=heads,
            n_head_kv=heads.per_layer(attention),
            scan=Scan.read(config, n_embd),
            n_expert=n_expert,
            n_expert_used=min(n_expert_used, n_expert),
            moe=tuple(n_expert > 1 and is_moe for is_moe in periodic(config, "expert_layer", n_layer, (2, 1))),
        )

    def notes(self) -> Iterator[str]:
        yield from self.scan.notes(self.n_embd)

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
        yield from self.outer_rows(self.embedding, "model.final_layernorm.weight")
        for i in range(self.n_layer):
            hf, blk = f"model.layers.{i}.", f"blk.{i}."
            yield row(hf + "input_layernorm.weight", blk + "attn_norm.weight", n)
            yield row(hf + "pre_ff_layernorm.weight", blk + "ffn_norm.weight", n)
            # no RoPE, so queries and keys stay unchanged
            yield from self.heads.rows(hf + "self_attn.", blk, n) if self.n_head_kv[i] else self._mamba(hf, blk)
            yield from self._moe(hf, blk) if self.moe[i] else swiglu(hf + "feed_forward.", blk, n, self.n_ff)

    def _mamba(self, hf: str, blk: str) -> Iterator[Row]:
        yield from self.scan.rows(hf + "mamba.", blk, self.n_embd)
        for part, n in (("dt", self.scan.dt_rank), ("b", self.scan.d_state), ("c", self.scan.d_state)):
            yield row(f"{hf}mamba.{part}_layernorm.weight", f"{blk}ssm_{part}_norm.weight", n)

    def _moe(self, hf: str, blk: str) -> Iterator[Row]:
        yield row(hf + "feed_forward.router.weight", blk + "ffn_gate_inp.weight", self.n_expert, self.n_embd)
        names = (("down", "down_proj"), ("gate", "gate_proj"), ("up", "up_proj"))
        yield from stacked_experts(hf + "feed_forward.experts.", blk, self.n_expert, self.n_embd, self.n_ff, names)


def periodic(config: Config, prefix: str, n_layer: int, usual: tuple[int, ...] = ()) -> tuple[bool, ...]:
    """Per layer, whether `prefix`_period and `prefix`_offset select it. usual: defaults of both, if there are any."""
    default = [{"default": value} for value in usual] or [{}, {}]
    period = config.integer(f"{prefix}_period", **default[0])
    offset = config.integer(f"{prefix}_offset", minimum=0, **default[1])
    if offset >= period:
        raise config.wrong(f"{prefix}_offset", f"less than {prefix}_period = {period}")
    return tuple(i % period == offset for i in range(n_layer))
