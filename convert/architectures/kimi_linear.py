"""Kimi Linear: gated delta rule by channels, latent attention without positions, experts. arXiv:2510.26692"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Self

from hybrid.quant.ggml.families.experts import SIGMOID
from hybrid.quant.ggml.families.kimi_linear import KimiLinearHparams

from ..checkpoint import Config
from ..transforms import NEGATIVE_EXP
from .blocks import SIZES, read_kinds, routed_experts, swiglu
from .decoder import Decoder
from .experts import GROUPS, read_dense, read_expert_groups, weights_norm_note
from .family import Row, Shapes, TensorBlock, row
from .latent import LATENT, LATENT_EPS, Latent, latent_eps, require_equal_heads
from .unused_fields import MTP, mtp_layers, read_mtp

KINDS = {"linear_attention": "linear_attention", "full_attention": "full_attention"}


@dataclass(frozen=True)
class KimiLinear(Decoder):
    """One model of Kimi Linear."""

    arch = "kimi-linear"
    architectures: ClassVar[tuple[str, ...]] = ("KimiLinearForCausalLM",)
    hparams: ClassVar[type[Any]] = KimiLinearHparams
    order = (
        f"{SIZES} eps n_expert n_expert_used {GROUPS} gating .general.file_type .vocab_size d_conv d_kda {LATENT} "
        "n_ff_expert n_shared n_dense weights_norm weights_scale latent_eps? n_kda?"
    )
    gating: ClassVar[int] = SIGMOID
    pre: ClassVar[tuple[str, ...]] = ("kimi-k2",)
    dropped: ClassVar[tuple[str, ...]] = ("model.mtp.",)
    without_effect: ClassVar[Mapping[str, str]] = {
        **MTP,
        **dict.fromkeys(("rope_theta", "rope_scaling", "rope_parameters", "mla_use_nope"), "no layer has positions"),
        "head_dim": "parts of a head have sizes of their own",
        "qk_head_dim": "the sum of its parts",
        "use_grouped_topk": "groups say how many are used",
    }
    mixer: ClassVar[str] = "self_attn."
    mixer_out: ClassVar[str] = "o_proj.weight"
    conditional: ClassVar[Mapping[str, str]] = {
        "first_k_dense_replace": "only without mlp_layer_types, as in transformers"
    }

    n_ff: int
    n_head: int
    latent: Latent
    attention: tuple[bool, ...]  # per layer
    n_dense: int  # first layers without experts
    d_conv: int
    n_kda: int
    d_kda: int
    n_expert: int
    n_expert_used: int
    groups: tuple[int, int]
    n_ff_expert: int
    n_shared: int
    weights_norm: bool
    weights_scale: float
    n_mtp: int  # layers after the last one, that guess tokens ahead

    activation: ClassVar[str] = "silu"
    usual_scale: ClassVar[float] = 2.446

    @classmethod
    def read(cls, config: Config, shapes: Shapes) -> Self:
        return cls(**cls.read_fields(config, shapes))

    @classmethod
    def read_fields(cls, config: Config, shapes: Shapes) -> dict[str, Any]:
        """The fields of this class."""
        config.expects("hidden_act", cls.activation)
        config.expects("attention_bias", False)
        config.expects("moe_layer_freq", 1)
        config.expects("moe_router_activation_func", "sigmoid")
        sizes = cls.sizes(config, shapes, spelled={"n_ctx": ("model_max_length", "max_position_embeddings")}, eps=1e-5)
        linear = config.section("linear_attn_config")
        n_layer, n_head = sizes["n_layer"], config.integer("num_attention_heads")
        require_equal_heads(config, n_head)
        n_expert = config.integer("num_experts", "num_local_experts", maximum=4096)
        n_used = config.integer("num_experts_per_token", "num_experts_per_tok", maximum=n_expert)
        return {
            **sizes,
            "n_ff": config.integer("intermediate_size"),
            "n_head": n_head,
            "latent": Latent.read(config),
            "attention": _attention(config, linear, n_layer),
            "n_dense": read_dense(config, n_layer, 1),
            "d_conv": read_linear(config, "linear_conv_kernel_dim", linear, "short_conv_kernel_size", minimum=2),
            "n_kda": read_linear(config, "linear_num_heads", linear, "num_heads"),
            "d_kda": read_linear(config, "linear_head_dim", linear, "head_dim"),
            "n_expert": n_expert,
            "n_expert_used": n_used,
            "groups": read_expert_groups(config, n_expert, n_used, "num_expert_group", "n_group"),
            "n_ff_expert": config.integer("moe_intermediate_size"),
            "n_shared": config.integer("num_shared_experts", "n_shared_experts", default=1, minimum=0),
            "weights_norm": config.boolean("moe_renormalize", "norm_topk_prob", default=True),
            "weights_scale": config.number("routed_scaling_factor", default=cls.usual_scale),
            "n_mtp": read_mtp(config),
        }

    def values(self) -> dict[str, Any]:
        return {
            "n_head_kv": [int(there) for there in self.attention[: self.blocks_in_file]],
            "latent_eps": latent_eps(self.eps),
            "n_kda": self.n_kda if self.n_kda != self.n_head else 0,
        }

    def notes(self) -> Iterator[str]:
        yield from self.shared_notes()
        if self.latent.q_rank:
            yield "llama.cpp cannot run this file: there queries come straight from a layer's input"
        if self.tied:
            yield "llama.cpp cannot load this file: there the output matrix is one of its own"
        if not self.weights_norm:
            yield weights_norm_note(self.weights_norm)

    def shared_notes(self) -> Iterator[str]:
        """Notes for both families with Kimi's delta rule."""
        if self.n_kda != self.n_head:
            yield "llama.cpp cannot load this file: there the delta rule has as many heads as attention"
        if self.eps != LATENT_EPS:
            yield f"llama.cpp normalizes latent vectors with an epsilon of {self.eps:g}: its results differ"

    def left_out(self) -> tuple[str, ...]:
        return (*self.dropped, *mtp_layers(self.n_layer, self.n_mtp))

    def canonical(self, name: str) -> str:
        # transformers 5 may save a dense part under the experts' name
        for i in range(self.n_dense):
            name = name.replace(f"layers.{i}.block_sparse_moe.", f"layers.{i}.mlp.")
        return name

    def parts(self, name: str, shape: tuple[int, ...]) -> Iterator[TensorBlock]:
        if name.endswith(".kv_b_proj.weight"):
            yield from self.latent.parts(name, self.n_head)

    def rows(self) -> Iterator[Row]:
        n = self.n_embd
        yield from self.outer_rows(self.embedding, "model.norm.weight")
        for i in range(self.blocks_in_file):
            hf, blk = f"model.layers.{i}.", f"blk.{i}."
            yield row(hf + "input_layernorm.weight", blk + "attn_norm.weight", n)
            yield row(hf + "post_attention_layernorm.weight", blk + "ffn_norm.weight", n)
            if self.attention[i]:
                yield from self.latent.rows(hf + self.mixer, blk, n, self.n_head, self.mixer_out)
            else:
                yield from self._delta(hf + self.mixer, blk)
            if i < self.n_dense:
                yield from swiglu(hf + "mlp.", blk, n, self.n_ff)
            else:
                yield from self.sparse(hf, blk)

    def _delta(self, hf: str, blk: str) -> Iterator[Row]:
        gates = self.gates(hf, blk, self.n_kda * self.d_kda)
        yield from delta_rows(hf, blk, self.n_embd, self.n_kda, self.d_kda, self.d_conv, gates, self.mixer_out)

    def gates(self, hf: str, blk: str, n_inner: int) -> Iterator[Row]:
        """The tensors of decay and gate of a layer with the delta rule."""
        yield from low_rank_rows(hf, blk, self.n_embd, n_inner, self.d_kda)
        yield row(hf + "A_log", blk + "ssm_a", 1, 1, self.n_kda, 1, transform=NEGATIVE_EXP)

    def sparse(self, hf: str, blk: str) -> Iterator[Row]:
        """A feed-forward part with experts."""
        sizes = self.n_expert, self.n_embd, self.n_ff_expert, self.n_shared
        names = (("down", "w2"), ("gate", "w1"), ("up", "w3"))
        yield from routed_experts(hf + "block_sparse_moe.", blk, *sizes, "gate.e_score_correction_bias", names)


def delta_rows(
    hf: str, blk: str, n: int, n_head: int, d: int, taps: int, gates: Iterable[Row], out: str = "o_proj.weight"
) -> Iterator[Row]:
    """The tensors of a layer with the delta rule. gates: tensors of its decay and gate; out: name of the last
    matrix in the checkpoint."""
    n_inner = n_head * d
    for part in "qkv":
        yield row(f"{hf}{part}_proj.weight", f"{blk}attn_{part}.weight", n_inner, n)
        conv = f"{hf}{part}_conv1d.weight"
        shape = n_inner, 1, taps
        yield row(conv, f"{blk}ssm_conv1d_{part}.weight", 1, n_inner, 1, taps, source_shape=shape)
    yield from gates
    yield row(hf + "b_proj.weight", blk + "ssm_beta.weight", n_head, n)
    yield row(hf + "dt_bias", blk + "ssm_dt.bias", n_inner)
    yield row(hf + "o_norm.weight", blk + "ssm_norm.weight", d)
    yield row(hf + out, blk + "attn_output.weight", n, n_inner)


def low_rank_rows(hf: str, blk: str, n: int, n_inner: int, rank: int) -> Iterator[Row]:
    """The matrices of decay and gate, each the product of two."""
    for part in "fg":
        yield row(f"{hf}{part}_a_proj.weight", f"{blk}ssm_{part}_a.weight", rank, n)
        yield row(f"{hf}{part}_b_proj.weight", f"{blk}ssm_{part}_b.weight", n_inner, rank)


def read_linear(config: Config, key: str, linear: Config, published: str, minimum: int = 1) -> int:
    """A size of layers with the delta rule, from the published key in a section or transformers' own; if both are
    present they must agree."""
    if published not in linear:
        return config.integer(key, minimum=minimum)
    value = linear.integer(published, minimum=minimum)
    config.expects(key, value)
    return value


def _attention(config: Config, linear: Config, n_layer: int) -> tuple[bool, ...]:
    """Per layer, whether it has attention; published configs count layers from 1."""
    if "layer_types" in config:
        return tuple(kind == "full_attention" for kind in read_kinds(config, KINDS, "layer_types", n_layer=n_layer))
    full = linear.get("full_attn_layers")
    if not isinstance(full, list) or not all(type(i) is int and 1 <= i <= n_layer for i in full):
        raise linear.wrong("full_attn_layers", f"numbers of layers from 1 to {n_layer}")
    others = [i for i in range(1, n_layer + 1) if i not in full]
    if linear.get("kda_layers") not in (None, others):
        raise linear.wrong("kda_layers", f"{others}, the layers that are not of full_attn_layers")
    return tuple(i + 1 in full for i in range(n_layer))
