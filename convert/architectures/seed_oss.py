"""Seed-OSS: Llama with biases on queries, keys and values. Of ByteDance-Seed."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

from ..checkpoint import Config
from .family import Row
from .llama import LLAMA, Llama


@dataclass(frozen=True)
class SeedOss(Llama):
    """One model of Seed-OSS."""

    arch = "seed_oss"
    architectures = ("SeedOssForCausalLM",)
    order = LLAMA
    pre = ("seed-coder",)
    usual_ctx = 524288
    usual_head = 128
    usual_bias = True
    norms: ClassVar[dict[str, str]] = {
        "input_layernorm": "attn_norm",
        "post_attention_layernorm": "post_attention_norm",
    }

    out_bias: bool

    @classmethod
    def read_more(cls, config: Config) -> dict[str, Any]:
        return {"out_bias": config.boolean("attention_out_bias", default=False)}

    def notes(self) -> Iterator[str]:
        yield from super().notes()
        if self.out_bias or self.mlp_bias or self.scaling.tensors:
            yield (
                "llama.cpp cannot load this file: in this architecture it has no place for biases of attention's "
                "output and of feed-forward parts, nor for factors of RoPE"
            )

    def attention(self, hf: str, blk: str) -> Iterator[Row]:
        yield from self.heads.rows(hf, blk, self.n_embd, bias=self.attention_bias, out_bias=self.out_bias)
