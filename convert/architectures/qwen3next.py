"""Qwen3-Next: gated delta rule, gated attention on every fourth layer, experts beside a shared one. Of Qwen."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

from hybrid.quant.ggml.families.qwen3next import Qwen3NextHparams

from ..checkpoint import Config
from ..transforms import PLUS_ONE
from .blocks import (
    HEAD_SIZE,
    SIZES,
    Heads,
    attention_bias_notes,
    read_kinds,
    read_rope,
    read_turned,
    stacked_experts,
    swiglu,
)
from .decoder import Decoder
from .delta import GroupedDelta, read_delta
from .experts import read_moe_layers, weights_norm_note
from .family import Row, Shapes, TensorBlock, row
from .heads import Head
from .rope import SCALING, RopeScaling, read_stretching

KINDS = {"linear_attention": "linear_attention", "full_attention": "full_attention"}
MTP = ("mtp.", "model.mtp.")  # beginnings of names of tensors
HEAD = Head("mtp.fc.weight", "mtp.pre_fc_norm_embedding.weight", "mtp.pre_fc_norm_hidden.weight", "mtp.norm.weight")


@dataclass(frozen=True)
class Qwen3Next(GroupedDelta, Decoder):
    """One model; layers may have experts or not."""

    arch = "qwen3next"
    architectures: ClassVar[tuple[str, ...]] = ("Qwen3NextForCausalLM",)
    hparams: ClassVar[type[Any]] = Qwen3NextHparams
    order = (
        f"{SIZES} .rope.dimension_sections? {SCALING} freq_base eps n_expert? n_expert_used? {HEAD_SIZE} "
        ".general.file_type n_ff_expert? n_ff_shared? weights_norm? d_conv d_state=d_k n_group=n_k_head "
        "n_ssm_head=n_v_head d_inner .attention.recurrent_layers .full_attention_interval n_rot n_ahead?"
    )
    pre: ClassVar[tuple[str, ...]] = ("qwen2",)
    conditional: ClassVar[Mapping[str, str]] = {
        "full_attention_interval": "where layer_types is absent",
        "intermediate_size": "where a layer has no experts",
    }

    n_ff: int  # of a layer without experts
    heads: Heads
    attention_bias: bool
    n_rot: int
    freq_base: float
    scaling: RopeScaling
    attention: tuple[bool, ...]  # per layer
    moe: tuple[bool, ...]  # per layer
    n_expert: int
    n_expert_used: int
    n_ff_expert: int
    n_ff_shared: int
    weights_norm: bool
    d_conv: int
    n_k_head: int
    n_v_head: int
    d_k: int
    d_v: int
    sections: tuple[int, ...]  # of RoPE for pictures; empty: no sections
    grouped: bool  # columns of ssm_out stay in the checkpoint's order: they are rotated (checkpoint/folded.py)
    heads_ahead: tuple[Head, ...]

    @classmethod
    def read(cls, config: Config, shapes: Shapes) -> Self:
        config.expects("hidden_act", "silu")
        config.expects("attn_output_gate", True)
        sizes = cls.sizes(config, shapes, n_ctx=32768)
        n_layer, n_embd = sizes["n_layer"], sizes["n_embd"]
        heads = Heads.read(config, n_embd)
        rope, theta = read_rope(config)
        n_rot = read_turned(config, heads.d_head, 0.25, heads.named(config))
        n_expert = config.integer("num_experts", default=0, minimum=0, maximum=4096)
        return cls(
            **sizes,
            n_ff=config.integer("intermediate_size", default=0, minimum=0),
            heads=heads,
            attention_bias=config.boolean("attention_bias", default=False),
            n_rot=n_rot,
            freq_base=theta,
            scaling=read_stretching(config, rope, theta, n_rot, sizes["n_ctx"]),
            attention=read_attention_layers(config, n_layer),
            moe=read_moe_layers(config, n_layer, n_expert),
            n_expert=n_expert,
            n_expert_used=config.integer("num_experts_per_tok", maximum=n_expert) if n_expert else 0,
            n_ff_expert=config.integer("moe_intermediate_size") if n_expert else 0,
            n_ff_shared=config.integer("shared_expert_intermediate_size") if n_expert else 0,
            weights_norm=cls.read_weights_norm(config),
            **read_delta(config, shapes),
            sections=cls.read_sections(rope),
            grouped=False,
            heads_ahead=read_heads(shapes),
        )

    def with_grouped_columns(self) -> Self:
        return replace(self, grouped=True)

    @classmethod
    def read_weights_norm(cls, config: Config) -> bool:
        """Whether the weights of experts are normalized to a sum of 1."""
        return config.boolean("norm_topk_prob", default=True)

    @classmethod
    def read_sections(cls, rope: Config) -> tuple[int, ...]:
        """The numbers of pairs of a head that are rotated by time, height and width of an image."""
        return ()

    def values(self) -> dict[str, Any]:
        recurrent = [*(not there for there in self.attention), *[False] * len(self.heads_ahead)]
        interval = self.attention.index(True) + 1 if any(self.attention) else self.n_layer + 1
        own = {"attention.recurrent_layers": recurrent, "full_attention_interval": interval}
        if not self.n_expert:
            own |= dict.fromkeys(("n_ff_expert", "n_ff_shared", "weights_norm"))
        return own | {"rope.dimension_sections": self.sections or None, "d_inner": self.n_v_head * self.d_v}

    def left_out(self) -> tuple[str, ...]:
        return (*super().left_out(), *(("mtp.layers.1.",) if self.heads_ahead else MTP))

    def canonical(self, name: str) -> str:
        return name.removeprefix("model.") if name.startswith("model.mtp.") else name

    def notes(self) -> Iterator[str]:
        yield from self.scaling.notes
        yield from attention_bias_notes(self.attention_bias)
        if self.n_expert and not all(self.moe):
            yield "llama.cpp cannot load this file: there all layers have experts, here some have not"
        if self.n_expert and not self.weights_norm:
            yield weights_norm_note(self.weights_norm)
        if self.d_k != self.d_v:
            yield "llama.cpp cannot load this file: there heads of keys and values have one size, here they have not"

    def parts(self, name: str, shape: tuple[int, ...]) -> Iterator[TensorBlock]:
        """The delta rule's parts, then the experts', which may be stacked, with gate before up."""
        n, n_ff = self.n_embd, self.n_ff_expert
        yield from self.delta_parts(name, shape)
        if name.endswith(".experts.gate_up_proj") and shape == (self.n_expert, 2 * n_ff, n):
            for e in range(self.n_expert):
                for i, half in enumerate(("gate", "up")):
                    yield TensorBlock(_expert(name, e, half), (e, i * n_ff, 0), (n_ff, n))
        elif name.endswith(".experts.down_proj") and shape == (self.n_expert, n, n_ff):
            for e in range(self.n_expert):
                yield TensorBlock(_expert(name, e, "down"), (e, 0, 0), (n, n_ff))

    def rows(self) -> Iterator[Row]:
        n = self.n_embd
        yield from self.outer_rows(self.embedding, "model.norm.weight", PLUS_ONE)
        for i in range(self.n_layer):
            yield from self._layer(f"model.layers.{i}.", f"blk.{i}.", self.attention[i], self.moe[i])
        for i, head in enumerate(self.heads_ahead):
            blk = f"blk.{self.n_layer + i}."
            yield from self._layer(f"mtp.layers.{i}.", blk, True, self.n_expert > 0)
            yield from head.rows(blk, n, self.n_vocab, PLUS_ONE)

    def _layer(self, hf: str, blk: str, attention: bool, moe: bool) -> Iterator[Row]:
        n = self.n_embd
        yield row(hf + "input_layernorm.weight", blk + "attn_norm.weight", n, transform=PLUS_ONE)
        post = hf + "post_attention_layernorm.weight"
        yield row(post, blk + "post_attention_norm.weight", n, transform=PLUS_ONE)
        yield from self._attention(hf + "self_attn.", blk) if attention else self.delta(hf + "linear_attn.", blk)
        yield from self._experts(hf + "mlp.", blk) if moe else swiglu(hf + "mlp.", blk, n, self.n_ff)

    def _attention(self, hf: str, blk: str) -> Iterator[Row]:
        n, heads = self.n_embd, self.heads
        for projection in heads.rows(hf, blk, n, bias=self.attention_bias):
            # queries come with gates
            double = projection.target.startswith(blk + "attn_q.")
            yield replace(projection, shape=(2 * projection.shape[0], *projection.shape[1:])) if double else projection
        yield row(hf + "q_norm.weight", blk + "attn_q_norm.weight", heads.d_head, transform=PLUS_ONE)
        yield row(hf + "k_norm.weight", blk + "attn_k_norm.weight", heads.d_head, transform=PLUS_ONE)

    def _experts(self, hf: str, blk: str) -> Iterator[Row]:
        n = self.n_embd
        yield row(hf + "gate.weight", blk + "ffn_gate_inp.weight", self.n_expert, n)
        names = tuple((part, part + "_proj") for part in ("down", "gate", "up"))
        yield from stacked_experts(hf + "experts.", blk, self.n_expert, n, self.n_ff_expert, names)
        yield from swiglu(hf + "shared_expert.", blk, n, self.n_ff_shared, "_shexp")
        yield row(hf + "shared_expert_gate.weight", blk + "ffn_gate_inp_shexp.weight", 1, n)


def _expert(name: str, e: int, part: str) -> str:
    return f"{name.rpartition('.')[0]}.{e}.{part}_proj.weight"


def read_heads(shapes: Shapes) -> tuple[Head, ...]:
    """The head that the checkpoint has, whatever its config says: Qwen3-Next's config does not mention it."""
    return (HEAD,) if any(name.removeprefix("model.") == HEAD.join for name in shapes) else ()


def read_attention_layers(config: Config, n_layer: int, kinds: Mapping[str, str] = KINDS) -> tuple[bool, ...]:
    """Per layer, whether it has attention, from its name by `kinds`; older configs give a period."""
    if "layer_types" in config:
        found = read_kinds(config, {**kinds}, "layer_types", n_layer=n_layer)
        return tuple(kind == "full_attention" for kind in found)
    interval = config.integer("full_attention_interval", default=4)
    return tuple((i + 1) % interval == 0 for i in range(n_layer))
