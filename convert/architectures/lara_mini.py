"""LaraMini: gated delta rule, attention over a window and over all tokens, experts and a shared one. Of Translated.

llama.cpp has no such architecture; names and keys are in docs/gguf-extensions.md.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Self

from hybrid.quant.ggml.families.lara_mini import LaraMiniHparams

from ..checkpoint import Config
from ..transforms import NEGATIVE_EXP
from .blocks import HEAD_SIZE, Heads, read_kinds, read_rope, swiglu
from .decoder import Decoder
from .delta import read_delta
from .family import Row, Shapes, TensorBlock, experts, row
from .rope import SCALING, RopeScaling, read_stretching
from .windows import KINDS as ATTENTION
from .windows import read_window

KINDS = {"linear_attention": "linear_attention", **ATTENTION}
PERIOD = ("linear_attention", "sliding_attention", "linear_attention", "full_attention", "sliding_attention")


@dataclass(frozen=True)
class LaraMini(Decoder):
    """One model."""

    arch = "lara-mini"
    architectures = ("LaraMiniForCausalLM",)
    hparams = LaraMiniHparams
    order = (
        f"n_layer n_ctx_train n_embd n_head n_head_kv freq_base {SCALING} eps {HEAD_SIZE} .general.file_type window "
        "local .vocab_size n_expert n_expert_used n_ff_expert n_ff_shared weights_norm? d_conv d_state=d_k "
        "n_group=n_k_head n_ssm_head=n_v_head d_inner"
    )
    pre = ("qwen2",)
    in_llama_cpp = False
    conditional: ClassVar[Mapping[str, str]] = {"sliding_window": "where a layer has a window"}

    heads: Heads
    attention_bias: bool
    kinds: tuple[str, ...]  # of the layers
    window: int
    freq_base: float
    scaling: RopeScaling
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

    @classmethod
    def read(cls, config: Config, shapes: Shapes) -> Self:
        config.expects("hidden_act", "silu")
        sizes = cls.sizes(config, shapes, n_ctx=131072, tied=True)
        n_layer = sizes["n_layer"]
        kinds = [PERIOD[i % len(PERIOD)] for i in range(n_layer)]
        if config.get("layer_types") is not None:
            kinds = read_kinds(config, KINDS, "layer_types", n_layer=n_layer)
        window = read_window(config, 512)
        if "sliding_attention" in kinds and not window:
            raise config.wrong("sliding_window", "a number of tokens, for the layers of sliding_attention")
        n_head = config.integer("num_attention_heads", default=16)
        heads = Heads(n_head, config.integer("num_key_value_heads", default=4), config.integer("head_dim", default=128))
        if n_head % heads.n_kv:
            raise config.wrong("num_key_value_heads", f"a divisor of the {n_head} attention heads")
        heads.require_even(config)
        rope, theta = read_rope(config)
        for settings in (config, rope):
            settings.expects("partial_rotary_factor", 1.0)
        n_expert = config.integer("num_experts", default=128, maximum=4096)
        return cls(
            **sizes,
            heads=heads,
            attention_bias=config.boolean("attention_bias", default=False),
            kinds=tuple(kinds),
            window=window,
            freq_base=theta,
            scaling=read_stretching(config, rope, theta, heads.d_head, sizes["n_ctx"]),
            n_expert=n_expert,
            n_expert_used=config.integer("num_experts_per_tok", default=4, maximum=n_expert),
            n_ff_expert=config.integer("moe_intermediate_size", default=512),
            n_ff_shared=config.integer("shared_expert_intermediate_size", default=512),
            weights_norm=config.boolean("norm_topk_prob", default=True),
            **read_delta(config, shapes, (8, 128, 16, 128)),
        )

    @property
    def _inputs(self) -> dict[str, int]:
        """The parts of a delta rule's input projection, with their numbers of rows, in the checkpoint's order."""
        n_value = self.n_v_head * self.d_v
        mixed = 2 * self.n_k_head * self.d_k + n_value
        return {"attn_qkv": mixed, "attn_gate": n_value, "ssm_beta": self.n_v_head, "ssm_alpha": self.n_v_head}

    def values(self) -> dict[str, Any]:
        return {
            "n_head_kv": self.heads.per_layer([kind != "linear_attention" for kind in self.kinds]),
            "local": [kind == "sliding_attention" for kind in self.kinds],
            "d_inner": self.n_v_head * self.d_v,
        }

    def parts(self, name: str, shape: tuple[int, ...]) -> Iterator[TensorBlock]:
        """in_proj has the rows of q, k, v, gate, beta and alpha; gate_up_proj has, expert by expert, the rows of gate,
        then of up."""
        n, n_ff, sizes = self.n_embd, self.n_ff_expert, self._inputs.values()
        if name.endswith(".linear_attn.in_proj.weight") and shape == (sum(sizes), n):
            first = 0
            for i, size in enumerate(sizes):
                yield TensorBlock(f"{name}.{i}", (first, 0), (size, n))
                first += size
        elif name.endswith(".experts.gate_up_proj") and shape == (self.n_expert, 2 * n_ff, n):
            for i in range(2 * self.n_expert):
                yield TensorBlock(f"{name}.{i}", (i // 2, i % 2 * n_ff, 0), (n_ff, n))

    def rows(self) -> Iterator[Row]:
        n = self.n_embd
        yield from self.outer_rows(self.embedding, "model.norm.weight")
        for i, kind in enumerate(self.kinds):
            hf, blk = f"model.layers.{i}.", f"blk.{i}."
            yield row(hf + "input_layernorm.weight", blk + "attn_norm.weight", n)
            yield row(hf + "post_attention_layernorm.weight", blk + "ffn_norm.weight", n)
            if kind == "linear_attention":
                yield from self._delta(hf + "linear_attn.", blk)
            else:
                yield from self.heads.rows(hf + "self_attn.", blk, n, bias=self.attention_bias)
                yield from self.heads.norm_rows(hf + "self_attn.", blk)
            yield from self._experts(hf + "mlp.", blk)

    def _delta(self, hf: str, blk: str) -> Iterator[Row]:
        n, taps, sizes = self.n_embd, self.d_conv, self._inputs
        for i, (target, size) in enumerate(sizes.items()):
            yield row(f"{hf}in_proj.weight.{i}", f"{blk}{target}.weight", size, n)
        mixed, conv = sizes["attn_qkv"], "ssm_conv1d.weight"
        yield row(hf + "conv1d.weight", blk + conv, mixed, taps, source_shape=(mixed, 1, taps))
        yield row(hf + "A_log", blk + "ssm_a", self.n_v_head, transform=NEGATIVE_EXP)
        yield row(hf + "dt_bias", blk + "ssm_dt.bias", self.n_v_head)
        yield row(hf + "out_norm.weight", blk + "ssm_norm.weight", self.d_v)
        yield row(hf + "out_proj.weight", blk + "ssm_out.weight", n, sizes["attn_gate"])

    def _experts(self, hf: str, blk: str) -> Iterator[Row]:
        n, n_ff, n_expert, both = self.n_embd, self.n_ff_expert, self.n_expert, hf + "experts.gate_up_proj"
        yield row(hf + "gate.weight", blk + "ffn_gate_inp.weight", n_expert, n)
        for k, part in enumerate(("gate", "up")):
            sources = [f"{both}.{2 * e + k}" for e in range(n_expert)]
            yield experts(sources, f"{blk}ffn_{part}_exps.weight", n_ff, n, group=hf)
        yield row(hf + "experts.down_proj", blk + "ffn_down_exps.weight", n_expert, n, n_ff)
        yield from swiglu(hf + "shared_expert.", blk, n, self.n_ff_shared, "_shexp")
