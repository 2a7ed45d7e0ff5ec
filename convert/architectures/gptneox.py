"""GPT-NeoX and Pythia: layer norms, no gates, the feed-forward part beside attention. arXiv:2204.06745"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np

from hybrid.quant.ggml.families.gptneox import GptNeoxHparams

from ..checkpoint import Config
from ..transforms import rows_in_order
from .blocks import check_rows
from .decoder import Decoder
from .family import Row, Shapes, row
from .rope import SCALING, RopeScaling, read_stretching
from .ungated import EXACT, GELUS, gelu_notes, norm_rows

NORMS = {"input_layernorm": "attn_norm", "post_attention_layernorm": "ffn_norm"}


@dataclass(frozen=True)
class GptNeox(Decoder):
    """One model. `parallel`: attention and the feed-forward part read the same residual stream, each after its own
    norm."""

    arch = "gptneox"
    architectures = ("GPTNeoXForCausalLM",)
    hparams = GptNeoxHparams
    order = f"n_ctx_train n_embd n_layer n_ff n_rot freq_base {SCALING} n_head parallel eps .general.file_type exact?"
    pre = ("olmo",)  # llama.cpp's name for this tokenizer without normalization
    embedding = "gpt_neox.embed_in.weight"
    conditional: ClassVar[Mapping[str, str]] = {
        "rotary_pct": "where rope_parameters has no partial_rotary_factor",
        "rotary_emb_base": "where rope_parameters has no rope_theta",
    }
    without_effect: ClassVar[Mapping[str, str]] = {
        **dict.fromkeys(("rope_theta", "partial_rotary_factor"), "here rotary_emb_base and rotary_pct say it"),
        "is_decoder": "attention is causal in any case",
    }

    n_ff: int
    n_head: int
    n_rot: int
    freq_base: float
    scaling: RopeScaling
    parallel: bool
    bias: bool  # of attention
    gelu: str

    @classmethod
    def read(cls, config: Config, shapes: Shapes) -> Self:
        config.expects("hidden_act", *GELUS)
        sizes = cls.sizes(config, shapes, n_ctx=2048, eps=1e-5, spelled={"eps": ("layer_norm_eps",)})
        n_embd, n_head = sizes["n_embd"], config.integer("num_attention_heads")
        if n_embd % n_head:
            raise config.wrong("num_attention_heads", f"a divisor of the hidden size {n_embd}")
        config.expects("head_dim", n_embd // n_head)
        rope = config.section("rope_parameters", "rope_scaling")
        part = rope.number("partial_rotary_factor", default=config.number("rotary_pct", default=0.25))
        n_rot = int(n_embd // n_head * part)
        if n_rot % 2 or not 0 < n_rot <= n_embd // n_head:
            key = "rotary_pct" if "rotary_pct" in config else "num_attention_heads"
            raise config.wrong(key, f"a positive even number of values to turn in heads; it gives {n_rot}")
        theta = rope.number("rope_theta", default=config.number("rotary_emb_base", default=10000.0))
        check_rows(config, 3 * n_embd, shapes, "hidden_size")
        return cls(
            **sizes,
            n_ff=config.integer("intermediate_size"),
            n_head=n_head,
            n_rot=n_rot,
            freq_base=theta,
            scaling=read_stretching(config, rope, theta, n_rot, sizes["n_ctx"]),
            parallel=config.boolean("use_parallel_residual", default=True),
            bias=config.boolean("attention_bias", default=True),
            gelu=config.string("hidden_act", default="gelu"),
        )

    def values(self) -> dict[str, Any]:
        return {"exact": self.gelu == EXACT}

    def notes(self) -> Iterator[str]:
        yield from self.scaling.notes
        yield from gelu_notes(self.gelu)
        if self.tied:
            yield "llama.cpp cannot load this file: there the output of this architecture is a matrix of its own"
        if not self.bias:
            yield "llama.cpp cannot load this file: there attention has biases in this architecture"

    def canonical(self, name: str) -> str:
        return "lm_head.weight" if name == "embed_out.weight" else name

    def rows(self) -> Iterator[Row]:
        n, d_head = self.n_embd, self.n_embd // self.n_head
        # the checkpoint has query, key and value of one head after the other
        order = np.arange(3 * n).reshape(self.n_head, 3, d_head).swapaxes(0, 1).reshape(-1)
        yield from self.outer_rows(self.embedding, "gpt_neox.final_layer_norm.weight")
        yield row("gpt_neox.final_layer_norm.bias", "output_norm.bias", n)
        for i in range(self.n_layer):
            hf, blk = f"gpt_neox.layers.{i}.", f"blk.{i}."
            yield from norm_rows(hf, blk, n, NORMS)
            for part, shape in (("weight", (n,)), ("bias", ())) if self.bias else (("weight", (n,)),):
                qkv, turned = f"{hf}attention.query_key_value.{part}", rows_in_order(order)
                yield row(qkv, f"{blk}attn_qkv.{part}", 3 * n, *shape, transform=turned)
                yield row(f"{hf}attention.dense.{part}", f"{blk}attn_output.{part}", n, *shape)
            for source, target, n_out, n_in in (
                ("dense_h_to_4h", "ffn_up", self.n_ff, n),
                ("dense_4h_to_h", "ffn_down", n, self.n_ff),
            ):
                yield row(f"{hf}mlp.{source}.weight", f"{blk}{target}.weight", n_out, n_in)
                yield row(f"{hf}mlp.{source}.bias", f"{blk}{target}.bias", n_out)
