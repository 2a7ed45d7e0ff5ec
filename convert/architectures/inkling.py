"""Inkling: four short convolutions on a layer, attention with a bias by distance, experts. Of Thinking Machines.

llama.cpp has no such architecture; names and keys are in docs/gguf-extensions.md.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np

from hybrid.quant.ggml.families.inkling import InklingHparams

from ..checkpoint import Config
from ..transforms import Transform, alternate_rows
from .blocks import MAX_HEAD, Heads, read_kinds
from .decoder import Decoder
from .family import Row, Shapes, TensorBlock, experts, row

KINDS = {"hybrid": "hybrid", "hybrid_sliding": "hybrid_sliding"}
PERIOD = 6  # the last of every N layers sees all tokens, if the config does not say
# parts of names in published checkpoints, and in transformers
PUBLISHED = (
    (".attn.", ".self_attn."), (".wq_du.", ".q_proj."), (".wk_dv.", ".k_proj."), (".wv_dv.", ".v_proj."),
    (".wr_du.", ".r_proj."), (".wo_ud.", ".o_proj."), ("sconv.weight", "sconv.conv1d.weight"),
    (".attn_norm.", ".input_layernorm."), (".mlp_norm.", ".post_attention_layernorm."),
    ("mlp.gate.bias", "mlp.gate.e_score_correction_bias"), (".experts.w2_weight", ".experts.down_proj"),
    (".shared_w2_weight", ".down_proj"), (".w2_md.", ".down_proj."), ("model.embed.", "model.embed_tokens."),
    ("model.embed_norm.", "model.embed_tokens.embed_norm."), ("model.unembed.", "lm_head."),
)  # fmt: skip
# matrices whose rows of gate and up alternate, in the published checkpoints
ROUTED, _SHARED, _DENSE = "experts.w13_weight", "shared_experts.shared_w13_weight", "w13_dn.weight"


def with_residual(divisor: float = 1.0) -> Transform:
    """Adds the convolution's input to taps [channel, tap], the newest last, and divides the sum."""

    def apply(x: np.ndarray, _: int) -> np.ndarray:
        taps = x.astype(np.float64)
        taps[:, -1] += 1
        return (taps / divisor).astype(np.float32)

    return Transform("the input added to", apply, arithmetic=True)


def _read_heads(config: Config, prefix: str, usual: tuple[int, int, int]) -> Heads:
    """Heads of the layers whose keys begin with `prefix`; `usual`: transformers' defaults."""
    names = (f"{prefix}num_attention_heads", f"{prefix}num_key_value_heads", f"{prefix}head_dim")
    n_head, n_kv, d_head = (
        config.integer(name, default=value, maximum=MAX_HEAD) for name, value in zip(names, usual, strict=True)
    )
    if n_head % n_kv:
        raise config.wrong(names[1], f"a divisor of the {n_head} attention heads")
    return Heads(n_head, n_kv, d_head, stated=True)


@dataclass(frozen=True)
class InklingBase(Decoder):
    """What both generations share. In checkpoints as published, rows of gate and up alternate (`alternate`)."""

    in_llama_cpp = False
    pre: ClassVar[tuple[str, ...]] = ("gpt-4o",)
    usual: ClassVar[Mapping[str, Any]]  # transformers' defaults that differ

    full: Heads  # of layers that see all tokens
    sliding: Heads
    local: tuple[bool, ...]
    window: int
    n_state: int  # profiles that a bias by distance mixes
    extent: int  # distances with a bias, on layers that see all tokens
    temperature: float
    period: int
    d_conv: int
    n_ff_expert: int
    n_expert: int
    n_expert_used: int
    weights_scale: float
    alternate: bool

    @classmethod
    def shared(cls, config: Config, shapes: Shapes) -> dict[str, Any]:
        """These fields, and the fields of `Decoder`."""
        config.expects("hidden_act", "silu")
        usual = cls.usual
        spelled = {"n_ctx": ("max_position_embeddings", "model_max_length")}
        sizes = cls.sizes(config, shapes, n_ctx=usual["n_ctx"], spelled=spelled) | {"tied": False}
        n_vocab = config.integer("unpadded_vocab_size", default=usual["n_vocab"] or sizes["n_vocab"])
        n_expert = config.integer("n_routed_experts", "num_local_experts", default=usual["n_expert"], maximum=4096)
        return sizes | {
            "n_vocab": min(sizes["n_vocab"], n_vocab),
            "full": _read_heads(config, "", usual["full"]),
            "sliding": _read_heads(config, "swa_", usual["sliding"]),
            "local": _read_local(config, sizes["n_layer"]),
            "window": config.integer("sliding_window_size", "sliding_window", default=usual["window"]),
            "n_state": config.integer("d_rel", default=16, maximum=MAX_HEAD),
            "extent": config.integer("rel_extent", default=1024, maximum=1 << 24),
            "temperature": config.number("log_scaling_alpha", default=0.1),
            "period": config.integer("log_scaling_n_floor", default=usual["period"]),
            "d_conv": config.integer("conv_kernel_size", "sconv_kernel_size", default=4, minimum=2, maximum=64),
            "n_expert": n_expert,
            "n_expert_used": config.integer("num_experts_per_tok", default=usual["n_used"], maximum=n_expert),
            "weights_scale": config.number("route_scale", "routed_scaling_factor", default=8.0),
            "alternate": any(ROUTED in name or _DENSE in name for name in shapes),
        }

    def heads(self, i: int) -> Heads:
        return self.sliding if self.local[i] else self.full

    def values(self) -> dict[str, Any]:
        heads = [self.heads(i) for i in range(self.n_layer)]
        scaled = {} if self.period and not all(self.local) else {"temperature": None, "period": None}
        return scaled | {"n_head": [one.n_head for one in heads], "n_head_kv": [one.n_kv for one in heads]}

    def parts(self, name: str, shape: tuple[int, ...]) -> Iterator[TensorBlock]:
        """The matrices of every expert, gate and up apart if their rows do not alternate; rows of tokens that the
        vocabulary has. Other shapes stay whole."""
        n, n_ff = self.n_embd, self.n_ff_expert
        if name in (self.embedding, "lm_head.weight") and shape[1:] == (n,) and shape[0] > self.n_vocab:
            yield TensorBlock(name, (0, 0), (self.n_vocab, n))
        elif name.endswith(".experts.gate_up_proj") and shape[1:] == (2 * n_ff, n):
            for i in range(2 * shape[0]):
                yield TensorBlock(f"{name}.{i}", (i // 2, i % 2 * n_ff, 0), (n_ff, n))
        elif "experts." in name and len(shape) == 3:
            for i in range(shape[0]):
                yield TensorBlock(f"{name}.{i}", (i, 0, 0), shape[1:])

    def convolution(self, hf: str, blk: str, part: str, n: int, divisor: float = 1.0) -> Row:
        shape, target = (n, 1, self.d_conv), f"{blk}ssm_conv1d_{part}.weight"
        return row(hf + "conv1d.weight", target, n, self.d_conv, source_shape=shape, transform=with_residual(divisor))

    def experts(self, hf: str, blk: str, n_shared: int = 0) -> Iterator[Row]:
        """Matrices of all experts; shared ones follow the others."""
        n, n_ff, n_routed = self.n_embd, self.n_ff_expert, self.n_expert - n_shared
        for first, part in enumerate(("gate", "up")):
            how = dict[str, Any]()
            sources = [f"{hf}experts.gate_up_proj.{2 * e + first}" for e in range(n_routed)]
            sources += [f"{hf}shared_experts.{part}_proj.{e}" for e in range(n_shared)]
            if self.alternate:
                sources = [f"{hf}{ROUTED}.{e}" for e in range(n_routed)]
                sources += [f"{hf}{_SHARED}.{e}" for e in range(n_shared)]
                how = {"source_shape": (2 * n_ff, n), "transform": alternate_rows(2 * n_ff, first)}
            target = f"{blk}ffn_{part}_exps.weight"
            yield Row(target, (self.n_expert, n_ff, n), tuple(sources), group=hf, **how)
        sources = [f"{hf}experts.down_proj.{e}" for e in range(n_routed)]
        sources += [f"{hf}shared_experts.down_proj.{e}" for e in range(n_shared)]
        yield experts(sources, blk + "ffn_down_exps.weight", n, n_ff, group=hf)


@dataclass(frozen=True)
class Inkling(InklingBase):
    """One model of Inkling."""

    arch: ClassVar[str] = "inkling"
    architectures: ClassVar[tuple[str, ...]] = ("InklingForCausalLM",)
    hparams: ClassVar[type[Any]] = InklingHparams
    order: ClassVar[str] = (
        "n_layer n_ctx_train n_embd n_ff n_head n_head_kv d_head=full/d_head .attention.value_length=full/d_head "
        "d_head_local=sliding/d_head .attention.value_length_swa=sliding/d_head eps window local temperature? period? "
        "d_conv n_expert n_expert_used n_shared n_ff_expert weights_scale logit_scale .general.file_type .vocab_size"
    )
    dropped: ClassVar[tuple[str, ...]] = ("model.mtp.",)
    conditional: ClassVar[Mapping[str, str]] = {
        "local_layer_ids": "where layer_types is absent",
        "dense_mlp_idx": "where mlp_layer_types is absent",
        "log_scaling_alpha": "where log_scaling_n_floor is a number, and a layer sees all tokens",
        "rel_extent": "where a layer sees all tokens",
    }
    without_effect: ClassVar[Mapping[str, str]] = {
        "tie_word_embeddings": "the output matrix is always one of its own, as in transformers",
        "audio_config": "only sound: the text's part of the model is converted",
        "rms_norm_eps_moe_gate": "routers have no norm, as in transformers",
        **dict.fromkeys(
            (
                *("mtp_config", "num_mtp_layers", "mtp_local_layer_ids"),
                *("chain_hidden_post_norm", "mtp_hidden_states_first"),
            ),
            "only layers that guess tokens ahead, which the file leaves out",
        ),
    }

    usual: ClassVar[Mapping[str, Any]] = {
        "n_ctx": 131072, "n_vocab": 0, "full": (64, 8, 128), "sliding": (64, 16, 128), "window": 512, "period": 0,
        "n_expert": 256, "n_used": 6,
    }  # fmt: skip

    dense: tuple[bool, ...]
    n_ff: int
    n_shared: int
    logit_scale: float

    @classmethod
    def read(cls, config: Config, shapes: Shapes) -> Self:
        config.expects("shared_expert_sink", True)
        fields = cls.shared(config, shapes)
        n_shared = config.integer("n_shared_experts", default=2, maximum=4096)
        n_ff = config.integer("intermediate_size", default=24576)
        n_ff_expert = config.integer("moe_intermediate_size", default=3072)
        if config.get("dense_intermediate_size") is not None:
            n_ff, n_ff_expert = config.integer("dense_intermediate_size"), n_ff
        fields |= {name: fields[name] + n_shared for name in ("n_expert", "n_expert_used")}
        return cls(
            **fields,
            dense=_read_dense(config, fields["n_layer"]),
            n_ff=n_ff,
            n_ff_expert=n_ff_expert,
            n_shared=n_shared,
            logit_scale=config.number("logits_mup_width_multiplier", "embedding_multiplier", default=24.0),
        )

    def canonical(self, name: str) -> str:
        for old, new in PUBLISHED:
            name = name.replace(old, new, 1)
        return name

    def rows(self) -> Iterator[Row]:
        n = self.n_embd
        yield from self.outer_rows(self.embedding, "model.norm.weight")
        yield row("model.embed_tokens.embed_norm.weight", "token_embd_norm.weight", n)
        for i in range(self.n_layer):
            hf, blk = f"model.layers.{i}.", f"blk.{i}."
            yield row(hf + "input_layernorm.weight", blk + "attn_norm.weight", n)
            yield row(hf + "post_attention_layernorm.weight", blk + "ffn_norm.weight", n)
            yield from self._attention(hf + "self_attn.", blk, i)
            yield self.convolution(hf + "attn_sconv.", blk, "attn", n)
            yield self.convolution(hf + "mlp_sconv.", blk, "ffn", n)
            gate = "" if self.dense[i] else "gate."
            yield row(f"{hf}mlp.{gate}global_scale", blk + "ssm_conv1d_ffn.scale", 1)
            yield from (self._dense if self.dense[i] else self._experts)(hf + "mlp.", blk)

    def _attention(self, hf: str, blk: str, i: int) -> Iterator[Row]:
        heads, n_state = self.heads(i), self.n_state
        yield from heads.rows(hf, blk, self.n_embd)
        yield from heads.norm_rows(hf, blk)
        yield row(hf + "r_proj.weight", blk + "attn_rel.weight", heads.n_head * n_state, self.n_embd)
        extent = self.window if self.local[i] else self.extent
        yield row(hf + "rel_logits_proj.proj", blk + "attn_rel_b.weight", n_state, extent)
        for part in "kv":
            yield self.convolution(f"{hf}{part}_sconv.", blk, part, heads.n_kv * heads.d_head)

    def _dense(self, hf: str, blk: str) -> Iterator[Row]:
        n, n_ff = self.n_embd, self.n_ff
        for first, part in enumerate(("gate", "up")):
            target = f"{blk}ffn_{part}.weight"
            if self.alternate:
                turned = alternate_rows(2 * n_ff, first)
                yield row(hf + _DENSE, target, n_ff, n, source_shape=(2 * n_ff, n), transform=turned)
            else:
                yield row(f"{hf}{part}_proj.weight", target, n_ff, n)
        yield row(hf + "down_proj.weight", blk + "ffn_down.weight", n, n_ff)

    def _experts(self, hf: str, blk: str) -> Iterator[Row]:
        """The router weighs all alike."""
        yield row(hf + "gate.weight", blk + "ffn_gate_inp.weight", self.n_expert, self.n_embd)
        yield row(hf + "gate.e_score_correction_bias", blk + "exp_probs_b.bias", self.n_expert - self.n_shared)
        yield from self.experts(hf, blk, self.n_shared)


def _read_local(config: Config, n_layer: int) -> tuple[bool, ...]:
    """Per layer, whether it has the window."""
    if "layer_types" in config:
        return tuple(kind == "hybrid_sliding" for kind in read_kinds(config, KINDS, "layer_types", n_layer=n_layer))
    listed = config.get("local_layer_ids")
    if listed is None:
        return tuple((i + 1) % PERIOD != 0 for i in range(n_layer))
    if not isinstance(listed, list) or not all(type(i) is int for i in listed):
        raise config.wrong("local_layer_ids", "numbers of layers")
    return tuple(i in listed for i in range(n_layer))


def _read_dense(config: Config, n_layer: int) -> tuple[bool, ...]:
    """Per layer, whether it has no experts."""
    if "mlp_layer_types" in config:
        kinds = {"dense": "dense", "sparse": "sparse"}
        return tuple(kind == "dense" for kind in read_kinds(config, kinds, "mlp_layer_types", n_layer=n_layer))
    n_dense = config.integer("dense_mlp_idx", default=0, minimum=0)
    return tuple(i < n_dense for i in range(n_layer))
