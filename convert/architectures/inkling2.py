"""Inkling 2: Inkling with banked residuals and heads of limited length. Of Thinking Machines.

llama.cpp has no such architecture; names and keys are in docs/gguf-extensions.md.
"""

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np

from hybrid.quant.ggml.families.inkling2 import Inkling2Hparams

from ..checkpoint import Config
from ..transforms import Transform, scaled
from .family import Row, Shapes, TensorBlock, row
from .inkling import InklingBase, with_residual

# parts of names in published checkpoints, and in transformers
PUBLISHED = (
    (".attn.", ".self_attn."), (".wq_du.", ".q_proj.linear."), (".wk_dv.", ".k_proj.linear."),
    (".wv_dv.", ".v_proj.linear."), (".wo_ud.", ".o_proj.linear."), (".k_sconv.", ".k_proj.sconv."),
    (".v_sconv.", ".v_proj.sconv."), (".rel_logits_proj.", ".relative_position_bias."),
    (".wr_du.", ".relative_position_bias.linear."), (".q_l2_clip.", ".q_proj.norm."),
    (".rel_l2_clip.", ".relative_position_bias.norm."), (".gate_attn.", ".o_proj.gate_proj."),
    (".attn_sink_proj.", ".sink_proj."), (".attn_sconv.", ".post_attention_convolution."),
    (".mlp_sconv.", ".post_mlp_convolution."),
    (".mlp_norm.", ".post_attention_layernorm."), (".attn_norm.", ".input_layernorm."),
    ("_input_norm.", "_input_layernorm."), ("mlp.gate.bias", "mlp.gate.e_score_correction_bias"),
    (".experts.w2_weight", ".experts.down_proj"), ("model.embed.", "model.embed_tokens."),
    ("model.embed_norm.", "model.embed_tokens.embed_norm."), ("model.unembed.", "lm_head."),
    ("model.attn_res.output_query", "model.final_input.query"),
)  # fmt: skip
_ENDINGS = (
    ("convolution.weight", "convolution.conv1d.weight"), ("sconv.weight", "sconv.conv1d.weight"),
    ("sconv.static_w", "sconv.static_weight"), ("sconv.weight_proj", "sconv.weight_proj.weight"),
)  # fmt: skip
_QUERIES = re.compile(r"^model\.attn_res\.(attn|mlp)_queries\.(\d+)$")


def _changed_taps(d_conv: int) -> Transform:
    """Taps [tap, channel], the newest first, that tokens change: to [channel, tap], the newest last, with the
    convolution's input added. Needs all rows at once."""
    add = with_residual(math.sqrt(2 * d_conv + 1))

    def apply(x: np.ndarray, first: int) -> np.ndarray:
        return add.apply(np.ascontiguousarray(x[::-1].T), first)

    return Transform("the input added to", apply, arithmetic=True, unit=d_conv)


@dataclass(frozen=True)
class Inkling2(InklingBase):
    """One model of Inkling 2."""

    arch: ClassVar[str] = "inkling2"
    architectures: ClassVar[tuple[str, ...]] = ("Inkling2ForCausalLM",)
    hparams: ClassVar[type[Any]] = Inkling2Hparams
    order: ClassVar[str] = (
        "n_layer n_ctx_train n_embd n_head n_head_kv d_head=full/d_head .attention.value_length=full/d_head "
        "d_head_local=sliding/d_head .attention.value_length_swa=sliding/d_head eps window local temperature? period? "
        "d_conv n_expert n_expert_used n_ff_expert weights_scale n_block limit state_limit gate_limit up_limit "
        "logit_cap .general.file_type .vocab_size"
    )
    conditional: ClassVar[Mapping[str, str]] = {
        "log_scaling_n_floor": "where a layer sees all tokens",
        "log_scaling_alpha": "where a layer sees all tokens",
        "rel_extent": "where a layer sees all tokens",
    }
    without_effect: ClassVar[Mapping[str, str]] = {
        "tie_word_embeddings": "the output matrix is always one of its own, as in transformers",
    }

    usual: ClassVar[Mapping[str, Any]] = {
        "n_ctx": 1048576, "n_vocab": 200058, "full": (48, 8, 128), "sliding": (48, 8, 128), "window": 1024,
        "period": 128000, "n_expert": 384, "n_used": 8,
    }  # fmt: skip

    usual_ff: ClassVar[int] = 2304

    n_block: int
    limit: float
    state_limit: float
    gate_limit: float
    up_limit: float
    logit_cap: float

    @classmethod
    def read(cls, config: Config, shapes: Shapes) -> Self:
        config.expects("scoring_func", "sigmoid")
        fields, n_block = cls.shared(config, shapes), config.integer("n_layers_per_attn_res_block", default=6)
        return cls(
            **fields,
            **cls.read_more(config, fields["n_layer"], n_block),
            n_ff_expert=config.integer("moe_intermediate_size", "intermediate_size", default=cls.usual_ff),
            n_block=n_block,
            limit=config.number("qk_l2_clip_threshold", default=22.627416997969522),
            state_limit=config.number("rel_l2_clip_threshold", default=8.0),
            gate_limit=config.number("mlp_gate_softcap", default=4.0),
            up_limit=config.number("mlp_up_softcap", default=25.0),
            logit_cap=config.number("final_logit_softcapping", default=30.0),
        )

    @classmethod
    def read_more(cls, config: Config, n_layer: int, n_block: int) -> dict[str, Any]:
        """Further fields of a family."""
        return {}

    def block_number(self, i: int) -> int:
        """The number of layer i in the file."""
        return i

    def canonical(self, name: str) -> str:
        if found := _QUERIES.match(name):
            i = int(found[2])
            return f"model.layers.{i}.mlp_input.query" if found[1] == "mlp" else _attention_query(i + 1)
        for old, new in PUBLISHED:
            name = name.replace(old, new, 1)
        for old, new in _ENDINGS:
            if name.endswith(old):
                return name.removesuffix(old) + new
        return name

    def parts(self, name: str, shape: tuple[int, ...]) -> Iterator[TensorBlock]:
        """Also the queries of three mixes."""
        if name.endswith(".attention_input.query") and shape == (3, self.n_embd):
            for i in range(3):
                yield TensorBlock(f"{name}.{i}", (i, 0), (self.n_embd,))
        else:
            yield from super().parts(name, shape)

    def rows(self) -> Iterator[Row]:
        n = self.n_embd
        yield from self.outer_rows(self.embedding, "model.norm.weight")
        yield row("model.embed_tokens.embed_norm.weight", "token_embd_norm.weight", n)
        yield self.query("model.final_input.query", "output_res_score")
        for i in range(self.n_layer):
            hf, blk = f"model.layers.{i}.", f"blk.{self.block_number(i)}."
            yield from self._inputs(hf, blk, i)
            yield row(hf + "post_attention_layernorm.weight", blk + "ffn_norm.weight", n)
            yield self.query(hf + "mlp_input.query", blk + "ffn_res_score")
            yield from self._attention(hf + "self_attn.", blk, i)
            for part, name in (("attn", "attention"), ("ffn", "mlp")):
                yield self.convolution(f"{hf}post_{name}_convolution.", blk, part, n)
            yield row(hf + "mlp.gate.weight", blk + "ffn_gate_inp.weight", self.n_expert, n)
            yield row(hf + "mlp.gate.e_score_correction_bias", blk + "exp_probs_b.bias", self.n_expert)
            yield from self.experts(hf + "mlp.", blk)

    def query(self, hf: str, target: str) -> Row:
        """The query of a mix, with the scale of its scores."""
        return row(hf, target + ".weight", self.n_embd, transform=scaled(self.n_embd**-0.5))

    def _inputs(self, hf: str, blk: str, i: int) -> Iterator[Row]:
        """Norms and queries of what attention reads; the first layer reads the embedding."""
        n, query = self.n_embd, _attention_query(i)
        if self.local[i]:
            yield row(hf + "input_layernorm.weight", blk + "attn_norm.weight", n)
            if i:
                yield self.query(query, blk + "attn_res_score")
            return
        for number, part in enumerate("qkv"):
            yield row(f"{hf}{part}_input_layernorm.weight", f"{blk}attn_norm_{part}.weight", n)
            if i:
                yield self.query(f"{query}.{number}", f"{blk}attn_res_score_{part}")

    def convolution(self, hf: str, blk: str, part: str, n: int, divisor: float = 1.0) -> Row:
        return super().convolution(hf, blk, part, n, math.sqrt(self.d_conv + 1))

    def _attention(self, hf: str, blk: str, i: int) -> Iterator[Row]:
        n, d_conv, heads = self.n_embd, self.d_conv, self.heads(i)
        n_q, n_kv = heads.n_head * heads.d_head, heads.n_kv * heads.d_head
        for part, rows in (("q", n_q), ("k", n_kv), ("v", n_kv)):
            yield row(f"{hf}{part}_proj.linear.weight", f"{blk}attn_{part}.weight", rows, n)
        yield row(hf + "o_proj.linear.weight", blk + "attn_output.weight", n, n_q)
        yield row(hf + "o_proj.gate_proj.weight", blk + "attn_gate.weight", n_q, n)
        yield row(hf + "sink_proj.weight", blk + "attn_sinks.weight", heads.n_head, n)
        yield row(hf + "q_proj.norm.scale", blk + "attn_q_norm.weight", heads.n_head, heads.d_head)
        bias, extent = hf + "relative_position_bias.", self.window if self.local[i] else self.extent
        yield row(bias + "linear.weight", blk + "attn_rel.weight", heads.n_head * self.n_state, n)
        yield row(bias + "norm.scale", blk + "attn_rel_norm.weight", heads.n_head, self.n_state)
        yield row(bias + "proj", blk + "attn_rel_b.weight", self.n_state, extent)
        for part in "kv":
            taps, target = f"{hf}{part}_proj.sconv.", f"{blk}ssm_conv1d_{part}.weight"
            if self.local[i]:
                yield self.convolution(taps, blk, part, n_kv)
                continue
            shape, changed = (d_conv, n_kv), _changed_taps(d_conv)
            yield row(taps + "static_weight", target, n_kv, d_conv, source_shape=shape, transform=changed)
            yield row(taps + "weight_proj.weight", f"{blk}ssm_conv1d_dyn_{part}.weight", heads.n_kv * d_conv, n)


def _attention_query(i: int) -> str:
    return f"model.layers.{i}.attention_input.query"
