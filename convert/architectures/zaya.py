"""ZAYA1: attention on convolved queries and keys, one expert or none for a token. arXiv:2511.17127

llama.cpp has no such architecture; names and keys are in docs/gguf-extensions.md.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np

from hybrid.quant.ggml.families.zaya import ZayaHparams

from ..checkpoint import Config
from ..transforms import Transform, transposed
from .blocks import HEAD_SIZE, SIZES, Heads, read_kinds, refuse_scaling
from .decoder import Decoder
from .family import Row, Shapes, TensorBlock, experts, row
from .rope import NOT_SCALED, SCALING, RopeScaling, read_stretching
from .windows import read_window

KINDS = {"hybrid": "hybrid", "hybrid_sliding": "hybrid_sliding"}
USUAL_BASES = {"hybrid": 5e6, "hybrid_sliding": 1e4}  # default bases of RoPE
USUAL_PART = 0.5  # default share of a head that RoPE rotates
SKIP_BIAS = -1.0


def _with_skip_bias(n: int) -> Transform:
    """Replaces the last of n biases (for the choice of no expert) by the value that transformers 5.23 sets whenever it
    loads a model, whatever the checkpoint says."""

    def apply(x: np.ndarray, _: int) -> np.ndarray:
        out = x.copy()
        out[-1] = SKIP_BIAS
        return out

    return Transform("the bias of no expert", apply, arithmetic=True, unit=n)


@dataclass(frozen=True)
class Turned:
    """RoPE of one kind of layer: base, number of rotated values of a head, and scaling."""

    theta: float
    n_rot: int
    scaling: RopeScaling = NOT_SCALED


@dataclass(frozen=True)
class Zaya(Decoder):
    """One model."""

    arch = "zaya"
    architectures = ("ZayaForCausalLM",)
    hparams = ZayaHparams
    order = (
        f"{SIZES} {HEAD_SIZE} eps taps_channel=taps/0 taps_head=taps/1 n_rot=turned/n_rot freq_base=turned/theta "
        f"{SCALING} window? local n_rot_local freq_base_local n_expert .expert_used_count n_router .general.file_type "
        ".vocab_size"
    )
    in_llama_cpp = False
    conditional: ClassVar[Mapping[str, str]] = {"sliding_window": "where layer_types has hybrid_sliding"}
    without_effect: ClassVar[Mapping[str, str]] = {
        **dict.fromkeys(("rope_theta", "partial_rotary_factor"), "transformers asks rope_parameters, kind by kind"),
        **dict.fromkeys(
            ("rope_parameters.rope_type", "rope_scaling.rope_type"),
            "of published configs, beside the kinds of layers; transformers drops it",
        ),
    }

    n_ff: int  # of an expert
    heads: Heads
    attention_bias: bool
    head_bias: bool  # the output matrix has a bias
    taps: tuple[int, int]  # of the convolutions by channels and by heads
    local: tuple[bool, ...]  # per layer, whether it has the window
    window: int
    turned: Turned
    turned_local: Turned
    n_expert: int
    n_router: int

    @classmethod
    def read(cls, config: Config, shapes: Shapes) -> Self:
        config.expects("hidden_act", "silu")
        config.expects("num_experts_per_tok", 1)
        sizes = cls.sizes(config, shapes, n_ctx=131072, eps=1e-5, tied=True)
        heads = _heads(config)
        if heads.n_kv * heads.d_head % 2:
            raise config.wrong("head_dim", "an even number of values of all heads of keys")
        taps = config.integer("cca_time0", default=2), config.integer("cca_time1", default=2)
        if taps == (1, 1):
            raise config.wrong("cca_time1", "2 or more, where cca_time0 is 1")
        local = _local(config, sizes["n_layer"])
        window = read_window(config)
        if any(local) and not window:
            raise config.wrong("sliding_window", "a number of tokens, for the layers of hybrid_sliding")
        turned, turned_local = (
            _turned(config, heads, kind, there, sizes["n_ctx"])
            for kind, there in (("hybrid", not all(local)), ("hybrid_sliding", any(local)))
        )
        return cls(
            **sizes,
            n_ff=config.integer("moe_intermediate_size", default=2048),
            heads=heads,
            attention_bias=config.boolean("attention_bias", default=False),
            head_bias=config.boolean("lm_head_bias", default=False),
            taps=taps,
            local=local,
            window=window if any(local) else 0,
            turned=turned if not all(local) else turned_local,
            turned_local=turned_local,
            n_expert=config.integer("num_experts", default=16, maximum=4096),
            n_router=config.integer("router_hidden_size", default=256),
        )

    def values(self) -> dict[str, Any]:
        own = {**self.turned.scaling.values(), "expert_used_count": 1}
        if not self.window:
            return own | {"local": None}
        local = self.turned_local
        return own | {"local": self.local, "n_rot_local": local.n_rot, "freq_base_local": local.theta}

    def parts(self, name: str, shape: tuple[int, ...]) -> Iterator[TensorBlock]:
        """gate_up_proj contains the rows of gate, then of up, expert by expert. Other shapes stay whole."""
        n, n_ff = self.n_embd, self.n_ff
        if name.endswith(".experts.gate_up_proj") and shape == (self.n_expert, 2 * n_ff, n):
            for i in range(2 * self.n_expert):
                yield TensorBlock(f"{name}.{i}", (i // 2, i % 2 * n_ff, 0), (n_ff, n))

    def rows(self) -> Iterator[Row]:
        n = self.n_embd
        yield from self.outer_rows(self.embedding, "model.norm.weight")
        if self.head_bias:
            yield row("lm_head.bias", "output.bias", self.n_vocab)
        for ours, part in (("weight", "scale"), ("bias", "bias")):
            yield row(f"model.input_hidden_states_{part}", f"token_embd_scale.{ours}", n)
        for i in range(self.n_layer):
            hf, blk = f"model.layers.{i}.", f"blk.{i}."
            for norm, sublayer, part in (("input", "attention", "attn"), ("post_attention", "mlp", "ffn")):
                yield row(f"{hf}{norm}_layernorm.weight", f"{blk}{part}_norm.weight", n)
                for source, target in (("hidden_states", "out"), ("residual", "residual")):
                    theirs, ours = f"{hf}post_{sublayer}_residual_scale.{source}_", f"{blk}{part}_{target}_scale."
                    yield row(theirs + "scale", ours + "weight", n)
                    yield row(theirs + "bias", ours + "bias", n)
            yield from self._attention(hf + "self_attn.", blk)
            yield from self._experts(hf + "mlp.", blk, i)

    def _attention(self, hf: str, blk: str) -> Iterator[Row]:
        n, d, n_head, n_kv = self.n_embd, self.heads.d_head, self.heads.n_head, self.heads.n_kv
        p, half, n_mixed = hf + "qkv_proj.", n_kv * d // 2, (n_head + n_kv) * d
        projections = (
            ("attn_q", [p + "q_proj"], n_head * d, n),
            ("attn_k", [p + "k_proj"], n_kv * d, n),
            ("attn_v", [p + "v_proj_current", p + "v_proj_delayed"], half, n),
            ("attn_output", [hf + "o_proj"], n, n_head * d),
        )
        for target, sources, rows, columns in projections:
            for part, shape in (
                (("weight", (columns,)), ("bias", ())) if self.attention_bias else (("weight", (columns,)),)
            ):
                yield Row(
                    f"{blk}{target}.{part}",
                    (len(sources) * rows, *shape),
                    tuple(f"{s}.{part}" for s in sources),
                    source_shape=(rows, *shape),
                )
        by_channel, by_head = p + "conv_qk_depthwise.", p + "conv_qk_grouped."
        yield row(
            by_channel + "weight",
            blk + "ssm_conv1d.weight",
            n_mixed,
            self.taps[0],
            source_shape=(n_mixed, 1, self.taps[0]),
        )
        yield row(by_channel + "bias", blk + "ssm_conv1d.bias", n_mixed)
        # a head's matrix reads the taps one after the other, the oldest first
        yield row(
            by_head + "weight",
            blk + "attn_conv.weight",
            n_head + n_kv,
            d,
            self.taps[1] * d,
            transform=transposed(d, self.taps[1]),
            source_shape=(n_mixed, d, self.taps[1]),
        )
        yield row(by_head + "bias", blk + "attn_conv.bias", n_mixed)
        yield row(hf + "qk_norm.temp", blk + "attn_k_norm.weight", n_kv)

    def _experts(self, hf: str, blk: str, i: int) -> Iterator[Row]:
        n, n_ff, r, n_expert = self.n_embd, self.n_ff, self.n_router, self.n_expert
        gate = hf + "gate."
        names = {"down_proj": ("in", n), "router_mlp.fc1": ("fc1", r), "router_mlp.fc2": ("fc2", r)}
        for source, (target, columns) in names.items():
            yield row(f"{gate}{source}.weight", f"{blk}ffn_router_{target}.weight", r, columns)
            yield row(f"{gate}{source}.bias", f"{blk}ffn_router_{target}.bias", r)
        yield row(gate + "router_mlp.norm.weight", blk + "ffn_router_norm.weight", r)
        if i:
            yield row(gate + "router_states_scale", blk + "ffn_router_carry.weight", r)
        yield row(gate + "router_mlp.out_proj.weight", blk + "ffn_gate_inp.weight", n_expert + 1, r)
        biases = _with_skip_bias(n_expert + 1)
        yield row(gate + "balancing_biases", blk + "exp_probs_b.bias", n_expert + 1, transform=biases)
        both = hf + "experts.gate_up_proj"
        for k, part in enumerate(("gate", "up")):
            sources = [f"{both}.{2 * e + k}" for e in range(n_expert)]
            yield experts(sources, f"{blk}ffn_{part}_exps.weight", n_ff, n, group=hf)
        yield row(hf + "experts.down_proj", blk + "ffn_down_exps.weight", n_expert, n, n_ff)


def _heads(config: Config) -> Heads:
    """Heads with transformers' defaults, which do not depend on the model's width."""
    n_head = config.integer("num_attention_heads", default=8)
    n_kv = config.integer("num_key_value_heads", default=2)
    if n_head % n_kv:
        raise config.wrong("num_key_value_heads", f"a divisor of the {n_head} attention heads")
    return Heads(n_head, n_kv, config.integer("head_dim", default=128, maximum=1 << 16), stated=True)


def _local(config: Config, n_layer: int) -> tuple[bool, ...]:
    """Per layer, whether it has the window; no layer has if the config lists none."""
    if "layer_types" not in config:
        return (False,) * n_layer
    return tuple(kind == "hybrid_sliding" for kind in read_kinds(config, KINDS, "layer_types", n_layer=n_layer))


def _turned(config: Config, heads: Heads, kind: str, counts: bool, n_ctx: int) -> Turned:
    """RoPE of layers of this kind. `counts`: whether there is such a layer; transformers ignores the settings of
    others. Layers with a window are not scaled."""
    stated = config.get("rope_parameters", "rope_scaling") is not None
    ropes = config.section("rope_parameters", "rope_scaling")
    rope, theta, part = ropes.section(kind), USUAL_BASES[kind], USUAL_PART
    if stated and counts:
        theta = rope.number("rope_theta")
    if stated:
        part = rope.number("partial_rotary_factor", default=1.0)
    if stated and kind != "hybrid":
        refuse_scaling(rope)
    n_rot = int(heads.d_head * part)
    if counts and (n_rot % 2 or not 0 < n_rot <= heads.d_head):
        raise config.wrong(
            config.named("rope_parameters", "rope_scaling") if stated else "head_dim",
            f"a positive even number of values to turn in heads of {heads.d_head}; {kind} has {n_rot}",
        )
    if kind == "hybrid" and counts:
        return Turned(theta, n_rot, read_stretching(rope, rope, theta, n_rot, n_ctx))
    return Turned(theta, n_rot)
