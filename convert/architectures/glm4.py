"""GLM 4: Llama with norms before and after both parts, half of every head rotated. arXiv:2406.12793"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from ..checkpoint import Config
from .blocks import Heads, read_turned
from .family import Row, row
from .llama import LLAMA, Llama


@dataclass(frozen=True)
class Glm4(Llama):
    """One model of GLM-4-0414 or GLM-Z1, dense."""

    arch = "glm4"
    architectures = ("Glm4ForCausalLM",)
    order = f"{LLAMA} n_rot"
    pre = ("glm4", "chatglm-bpe")
    usual_ctx, usual_eps = 131072, 1.5625e-7
    usual_head = 128
    usual_bias = True  # of queries, keys and values
    norms: ClassVar[dict[str, str]] = {
        "input_layernorm": "attn_norm",
        "post_self_attn_layernorm": "post_attention_norm",
        "post_attention_layernorm": "ffn_norm",
        "post_mlp_layernorm": "post_ffw_norm",
    }

    @classmethod
    def read_turned(cls, config: Config, heads: Heads) -> int:
        return read_turned(config, heads.d_head, 0.5, heads.named(config))

    def attention(self, hf: str, blk: str) -> Iterator[Row]:
        yield from self.heads.rows(hf, blk, self.n_embd, bias=self.attention_bias, out_bias=False)

    def feed_forward(self, hf: str, blk: str, i: int) -> Iterator[Row]:
        yield row(hf + "gate_up_proj.weight", blk + "ffn_up.weight", 2 * self.n_ff, self.n_embd)
        yield row(hf + "down_proj.weight", blk + "ffn_down.weight", self.n_embd, self.n_ff)
