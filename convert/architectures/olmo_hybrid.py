"""OLMo Hybrid: the gated delta rule, and attention with norms after its parts on every fourth layer. Of Ai2.

llama.cpp has no such architecture; names and keys are in docs/gguf-extensions.md.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Self

from hybrid.quant.ggml.families.olmo_hybrid import OlmoHybridHparams

from ..checkpoint import Config
from ..transforms import NEGATIVE_EXP
from .blocks import SIZES, Heads, read_kinds, refuse_scaling, swiglu
from .decoder import Decoder
from .delta import read_delta
from .family import Row, Shapes, TensorBlock, row
from .qwen3next import KINDS
from .unused_fields import STEP_SIZES

GATED_NORM_EPS = 1e-5  # of the norm after the scan, whatever the config says of other norms


@dataclass(frozen=True)
class OlmoHybrid(Decoder):
    """One model."""

    arch = "olmo-hybrid"
    architectures = ("OlmoHybridForCausalLM",)
    hparams = OlmoHybridHparams
    order = (
        f"{SIZES} eps n_rot freq_base d_conv d_state=d_k n_group=n_k_head n_ssm_head=n_v_head d_inner beta_scale "
        "gated_eps .general.file_type .vocab_size"
    )
    in_llama_cpp = False
    pre = ("dbrx",)
    without_effect: ClassVar[Mapping[str, str]] = dict.fromkeys(
        ("linear_a_log_min", "linear_a_log_max", "linear_dt_min", "linear_dt_max", "linear_dt_init_floor"),
        STEP_SIZES["time_step_min"],
    )

    n_ff: int
    heads: Heads
    attention_bias: bool
    n_head_kv: tuple[int, ...]  # per layer; 0 marks one with the delta rule
    n_rot: int  # 0: no positions
    freq_base: float
    d_conv: int
    n_k_head: int
    n_v_head: int
    d_k: int
    d_v: int
    beta_scale: float

    @classmethod
    def read(cls, config: Config, shapes: Shapes) -> Self:
        config.expects("hidden_act", "silu")
        sizes = cls.sizes(config, shapes, n_ctx=65536)
        n_layer, n_embd = sizes["n_layer"], sizes["n_embd"]
        heads = Heads.read(config, n_embd, head_dim=False)
        rope = config.section("rope_parameters", "rope_scaling")
        refuse_scaling(rope)
        # the released models say null, which is not a default
        turned = "rope_theta" in rope or "rope_theta" not in rope.data
        if turned:
            heads.require_even(config)
        n_k_head = config.integer("linear_num_key_heads", default=heads.n_head)
        d_k = config.integer("linear_key_head_dim", default=max(1, 3 * n_embd // (4 * n_k_head)))
        return cls(
            **sizes,
            n_ff=config.integer("intermediate_size"),
            heads=heads,
            attention_bias=config.boolean("attention_bias", default=False),
            n_head_kv=heads.per_layer(_attention(config, n_layer)),
            n_rot=heads.d_head if turned else 0,
            freq_base=rope.number("rope_theta", default=config.number("rope_theta", default=10000.0)),
            **read_delta(config, shapes, (n_k_head, d_k, heads.n_head, 2 * d_k)),
            beta_scale=2.0 if config.boolean("linear_allow_neg_eigval", default=True) else 1.0,
        )

    def values(self) -> dict[str, Any]:
        return {"d_inner": self.n_v_head * self.d_v, "gated_eps": GATED_NORM_EPS}

    def canonical(self, name: str) -> str:
        # the released checkpoints' names
        name = name.replace(".attention_layer_norm.", ".input_layernorm.")
        return name.replace(".feedforward_layer_norm.", ".post_attention_layernorm.")

    @property
    def _sizes(self) -> dict[str, int]:
        """Rows of queries, keys and values of the delta rule."""
        return {"q": self.n_k_head * self.d_k, "k": self.n_k_head * self.d_k, "v": self.n_v_head * self.d_v}

    @property
    def _piece(self) -> int:
        return math.gcd(*self._sizes.values())

    def parts(self, name: str, shape: tuple[int, ...]) -> Iterator[TensorBlock]:
        """Projections and taps of q, k, v are one tensor in GGUF, so here they are pieces of one size, numbered
        consecutively. The checkpoint may also store the taps as one tensor."""
        hf, layer_part, last = name.rpartition("linear_attn.")
        if not layer_part:
            return
        first = 0
        for part, size in self._sizes.items():
            for source, target, rest in (
                (f"{part}_proj", "qkv", (self.n_embd,)),
                (f"{part}_conv1d", "conv1d", (1, self.d_conv)),
            ):
                if last == source + ".weight" and shape == (size, *rest):
                    yield from self._pieces(f"{hf}{layer_part}{target}.weight", first, size, rest)
            first += size
        if last == "conv1d.weight" and shape == (first, 1, self.d_conv):
            yield from self._pieces(name, 0, first, shape[1:])

    def _pieces(self, name: str, first: int, n: int, rest: tuple[int, ...]) -> Iterator[TensorBlock]:
        """Pieces of a tensor of n rows, which are rows `first` and on of the tensor called `name`."""
        for i in range(0, n, self._piece):
            number = (first + i) // self._piece
            yield TensorBlock(f"{name}.{number}", (i, *(0 for _ in rest)), (self._piece, *rest))

    def rows(self) -> Iterator[Row]:
        n = self.n_embd
        yield from self.outer_rows(self.embedding, "model.norm.weight")
        for i in range(self.n_layer):
            hf, blk = f"model.layers.{i}.", f"blk.{i}."
            if self.n_head_kv[i]:
                norms = ("post_attention_norm", "post_ffw_norm")
                sources = ("post_attention_layernorm", "post_feedforward_layernorm")
                mixer = self._attention(hf + "self_attn.", blk)
            else:
                norms, sources = ("attn_norm", "ffn_norm"), ("input_layernorm", "post_attention_layernorm")
                mixer = self._delta(hf + "linear_attn.", blk)
            for source, target in zip(sources, norms, strict=True):
                yield row(f"{hf}{source}.weight", f"{blk}{target}.weight", n)
            yield from mixer
            yield from swiglu(hf + "mlp.", blk, n, self.n_ff)

    def _attention(self, hf: str, blk: str) -> Iterator[Row]:
        """Attention; norms of queries and keys span all heads."""
        yield from self.heads.rows(hf, blk, self.n_embd, bias=self.attention_bias)
        for part, heads in (("q", self.heads.n_head), ("k", self.heads.n_kv)):
            yield row(f"{hf}{part}_norm.weight", f"{blk}attn_{part}_norm.weight", heads * self.heads.d_head)

    def _delta(self, hf: str, blk: str) -> Iterator[Row]:
        n, n_value, mixed = self.n_embd, self._sizes["v"], sum(self._sizes.values())
        for source, target, rest, last in (
            ("qkv", "attn_qkv", (n,), n),
            ("conv1d", "ssm_conv1d", (1, self.d_conv), self.d_conv),
        ):
            pieces = tuple(f"{hf}{source}.weight.{i}" for i in range(mixed // self._piece))
            yield Row(f"{blk}{target}.weight", (mixed, last), pieces, source_shape=(self._piece, *rest))
        yield row(hf + "g_proj.weight", blk + "attn_gate.weight", n_value, n)
        yield row(hf + "a_proj.weight", blk + "ssm_alpha.weight", self.n_v_head, n)
        yield row(hf + "b_proj.weight", blk + "ssm_beta.weight", self.n_v_head, n)
        yield row(hf + "A_log", blk + "ssm_a", self.n_v_head, transform=NEGATIVE_EXP)
        yield row(hf + "dt_bias", blk + "ssm_dt.bias", self.n_v_head)
        yield row(hf + "o_norm.weight", blk + "ssm_norm.weight", self.d_v)
        yield row(hf + "o_proj.weight", blk + "ssm_out.weight", n, n_value)


def _attention(config: Config, n_layer: int) -> list[bool]:
    """Per layer, whether it has attention; without a list, every fourth layer, and at least the last one."""
    if "layer_types" in config:
        return [kind == "full_attention" for kind in read_kinds(config, KINDS, "layer_types", n_layer=n_layer)]
    return [i % 4 == 3 or i == n_layer - 1 < 3 for i in range(n_layer)]
