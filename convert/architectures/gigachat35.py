"""GigaChat 3.5: gated delta rule, latent attention on every fourth layer, experts, norms with gates around all parts.
Of Sber."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

from hybrid.quant.ggml.families.gigachat35 import GigaChat35Hparams

from ..checkpoint import Config
from ..transforms import PLUS_ONE
from .blocks import read_kinds, read_layers, swiglu
from .deepseek2 import DeepSeekV2, DeepSeekV3
from .delta import GroupedDelta, read_delta
from .family import Family, Row, Shapes, TensorBlock, row
from .heads import MOST_HEADS
from .unused_fields import mtp_layers

KINDS = {"linear_attention": "linear_attention", "full_attention": "full_attention", "attention": "full_attention"}
# Settings with one supported value, which a config may leave out.
FIXED: Mapping[str, Any] = {
    "attention_type": "LlamaLatentAttention",
    "num_krope_heads": 1,
    "norm_type": "ZeroCenteredGatedNorm",
    "layernorm_type": "pre_post",
    "layernorm_gating_weight": 2.0,
    "gated_attention": True,
    "use_mla_scaling_factor": True,
    "use_shared_expert_sigmoid": False,
    "linear_attention_type": "Qwen3NextGatedDeltaNet",
    "linear_gating_type": "gated_rmsnorm_sigmoid_zero_centered",
    "linear_sigmoid_gate_scale": 2.0,
    "linear_use_short_conv": True,
    "linear_use_legacy_qkvz_layout": False,
    "output_gate_type": "sigmoid",
}
NORM_RANK = 16  # of the gates of norms
NORMS = {
    "input_layernorm": "attn_norm", "post_self_attn_layernorm": "post_attention_norm",
    "post_attention_layernorm": "ffn_norm", "post_feedforward_layernorm": "post_ffw_norm",
}  # fmt: skip


@dataclass(frozen=True)
class GigaChat35(GroupedDelta, DeepSeekV3):
    """One model of GigaChat 3.5."""

    arch = "gigachat35"
    architectures: ClassVar[tuple[str, ...]] = ("GigaChat35ForCausalLM",)
    hparams: ClassVar[type[Any]] = GigaChat35Hparams
    order = (
        f"{DeepSeekV3.order} .expert_shared_feed_forward_length d_conv d_state=d_k n_group=n_k_head "
        "n_ssm_head=n_v_head d_inner recurrent limit limit_shared gated_eps?"
    )
    pre = ("gigachat",)
    in_llama_cpp = False  # only in a pull request
    without_effect: ClassVar[Mapping[str, str]] = {
        **DeepSeekV2.without_effect,
        **dict.fromkeys(("optimizer_eps", "attention_distillation"), "only training"),
    }
    conditional: ClassVar[Mapping[str, str]] = {"nextn_is_sparse": "only with tensors of heads that guess tokens ahead"}
    norm_transform = PLUS_ONE

    d_conv: int
    n_k_head: int
    n_v_head: int
    d_k: int
    d_v: int
    attention: tuple[bool, ...]  # per layer
    limit: float  # of the inputs of gates in feed-forward parts; 0: none
    gated_eps: float  # of the norm of the delta rule's results
    sparse_heads: bool  # whether heads that guess tokens ahead have experts

    @classmethod
    def read(cls, config: Config, shapes: Shapes) -> Self:
        for key, value in FIXED.items():
            if key in config.data and config.get(key) is None:
                raise config.wrong(key, str(value))
            config.expects(key, value, *([int(value)] if type(value) is float else []))
        read_delta(config, shapes)  # `read_more` has no shapes to check them against
        family = super().read(config, shapes)
        return replace(family, attention=(*family.attention, *[True] * len(family.heads_ahead)))

    @classmethod
    def read_more(cls, config: Config, n_ctx: int) -> dict[str, Any]:
        return {
            **read_delta(config, {}),
            "attention": _attention(config, read_layers(config)),
            "limit": _limit(config),
            "sparse_heads": config.boolean("nextn_is_sparse", default=False),
            "gated_eps": config.number("linear_attn_o_norm_eps", "rms_norm_eps", default=cls.usual_eps),
        }

    def values(self) -> dict[str, Any]:
        return {
            **super().values(),
            "latent_eps": None,
            "expert_shared_feed_forward_length": self.n_shared * self.n_ff_expert,
            "d_inner": self.n_value,
            "recurrent": [not there for there in self.attention[: self.blocks_in_file]],
            **dict.fromkeys(("limit", "limit_shared"), [self.limit] * self.blocks_in_file),
            "gated_eps": self.gated_eps if self.gated_eps != self.eps else None,
        }

    def left_out(self) -> tuple[str, ...]:
        return mtp_layers(self.blocks_in_file, MOST_HEADS)

    def notes(self) -> Iterator[str]:
        yield from Family.notes(self)
        yield from self.rope_scaling.notes

    def parts(self, name: str, shape: tuple[int, ...]) -> Iterator[TensorBlock]:
        yield from super().parts(name, shape)
        yield from self.delta_parts(name, shape)
        share = self.n_v_head // self.n_k_head
        if name.endswith(".in_proj_ba.weight") and shape == (2 * self.n_v_head, self.n_embd):
            for i in range(2 * self.n_k_head):
                yield TensorBlock(f"{name}.{i}", (i * share, 0), (share, self.n_embd))

    def rows(self) -> Iterator[Row]:
        yield from self.outer_rows(self.embedding, "model.norm.weight", PLUS_ONE)
        yield from _gate_rows("model.norm", "output_norm", self.n_embd)
        for i, head in enumerate(self.heads_ahead):
            blk = f"blk.{self.n_layer + i}."
            yield from head.rows(blk, self.n_embd, self.n_vocab, PLUS_ONE)
            for source, target in ((head.token, "enorm"), (head.state, "hnorm"), (head.norm, "shared_head_norm")):
                if source:
                    yield from _gate_rows(source.removesuffix(".weight"), f"{blk}nextn.{target}", self.n_embd)
        for i in range(self.blocks_in_file):
            hf, blk = f"model.layers.{i}.", f"blk.{i}."
            for source, target in NORMS.items():
                yield from _norm_rows(hf + source, blk + target, self.n_embd)
            yield from self.mixer(hf + "self_attn.", blk, i)
            yield from self.feed_forward(hf + "mlp.", blk, i)

    def feed_forward(self, hf: str, blk: str, i: int) -> Iterator[Row]:
        is_dense = i < self.n_dense if i < self.n_layer else not self.sparse_heads
        yield from swiglu(hf, blk, self.n_embd, self.n_ff) if is_dense else self.experts(hf, blk)

    def mixer(self, hf: str, blk: str, i: int) -> Iterator[Row]:
        if not self.attention[i]:
            yield from self.delta(hf, blk)
            return
        n, n_head = self.n_embd, self.n_head
        yield from self.latent.rows(hf, blk, n, n_head, "o_proj.weight", norm=_norm_rows)
        yield row(hf + "gate_proj.weight", blk + "attn_gate.weight", n_head * self.latent.d_value, n)

    def beta_alpha(self, hf: str, blk: str) -> Iterator[Row]:
        for i, part in enumerate(("beta", "alpha")):  # in turn for every head of keys
            pieces = tuple(f"{hf}in_proj_ba.weight.{2 * k + i}" for k in range(self.n_k_head))
            piece = (self.n_v_head // self.n_k_head, self.n_embd)
            yield Row(f"{blk}ssm_{part}.weight", (self.n_v_head, self.n_embd), pieces, source_shape=piece)


def _norm_rows(hf: str, target: str, n: int) -> Iterator[Row]:
    """A norm of n values with its gate; names without `.weight`."""
    yield row(hf + ".weight", target + ".weight", n, transform=PLUS_ONE)
    yield from _gate_rows(hf, target, n)


def _gate_rows(hf: str, target: str, n: int) -> Iterator[Row]:
    yield row(hf + ".gate_up_projection.weight", target + "_gate_up.weight", NORM_RANK, n)
    yield row(hf + ".gate_down_projection.weight", target + "_gate_down.weight", n, NORM_RANK)


def _limit(config: Config) -> float:
    """The limit of gates' inputs; 0: none. The field is required: vLLM and SGLang have different defaults."""
    if "swiglu_limit" in config.data and config.get("swiglu_limit") is None:
        return 0.0
    return max(0.0, config.number("swiglu_limit", positive=False))


def _attention(config: Config, n_layer: int) -> tuple[bool, ...]:
    """Per layer, whether it has attention; otherwise it has the delta rule. Two fields may say so."""
    full = config.get("full_attention_layers")
    if full is None:
        return _by_kinds(config, n_layer)
    if not isinstance(full, list) or not all(type(i) is int and 0 <= i < n_layer for i in full):
        raise config.wrong("full_attention_layers", f"numbers of layers from 0 to {n_layer - 1}")
    attention = tuple(i in full for i in range(n_layer))
    if config.get("layer_types") is not None and _by_kinds(config, n_layer) != attention:
        raise config.wrong("layer_types", "the same layers of attention as full_attention_layers")
    return attention


def _by_kinds(config: Config, n_layer: int) -> tuple[bool, ...]:
    return tuple(kind == "full_attention" for kind in read_kinds(config, KINDS, "layer_types", n_layer=n_layer))
