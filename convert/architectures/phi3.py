"""Phi-3: Llama with queries, keys and values in one matrix, gate and up in another. arXiv:2404.14219"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from ..checkpoint import Config
from .blocks import read_turned
from .family import Row, row
from .llama import Llama


@dataclass(frozen=True)
class Phi3(Llama):
    """One model, with full attention."""

    arch = "phi3"
    architectures = ("Phi3ForCausalLM",)
    pre = ("gpt-4o",)

    n_rot: int

    @classmethod
    def read_more(cls, config: Config) -> dict[str, Any]:
        config.expects("attention_bias", False)
        d_head = config.integer("hidden_size") // config.integer("num_attention_heads")
        n_rot = read_turned(config, d_head, 1.0, "hidden_size")
        return {"n_rot": n_rot}

    def more_keys(self) -> Iterator[tuple[str, Any]]:
        yield "rope.dimension_count", self.n_rot
        yield "rope.scaling.original_context_length", self.n_ctx
        yield "attention.sliding_window", 0  # as said in the notes

    def attention(self, hf: str, blk: str) -> Iterator[Row]:
        n, heads = self.n_embd, self.heads
        n_q = heads.n_head * heads.d_head
        yield row(hf + "qkv_proj.weight", blk + "attn_qkv.weight", n_q + 2 * heads.n_kv * heads.d_head, n)
        yield row(hf + "o_proj.weight", blk + "attn_output.weight", n, n_q)

    def feed_forward(self, hf: str, blk: str) -> Iterator[Row]:
        yield row(hf + "gate_up_proj.weight", blk + "ffn_up.weight", 2 * self.n_ff, self.n_embd)
        yield row(hf + "down_proj.weight", blk + "ffn_down.weight", self.n_embd, self.n_ff)
