"""StableLM: Llama with layer norms, a quarter of every head rotated. arXiv:2402.17834"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from hybrid.quant.ggml.families.llama import LayerNormLlamaHparams

from ..checkpoint import Config
from .blocks import Heads, read_turned
from .family import Row
from .llama import LLAMA, Llama


@dataclass(frozen=True)
class StableLm(Llama):
    """One model of StableLM 3B or StableLM 2 1.6B; not the 12B one, whose queries and keys are normalized."""

    arch = "stablelm"
    architectures = ("StableLmForCausalLM", "StableLMEpochForCausalLM")
    hparams = LayerNormLlamaHparams
    order = f"{LLAMA} n_rot .use_parallel_residual"
    pre = ("stablelm2", "gpt-2")
    eps_key = "layer_norm_eps"
    norm_bias = True
    usual_ctx, usual_eps = 4096, 1e-5

    @classmethod
    def read_biases(cls, config: Config) -> dict[str, Any]:
        return {"attention_bias": config.boolean("use_qkv_bias", default=False), "mlp_bias": False}

    @classmethod
    def read_turned(cls, config: Config, heads: Heads) -> int:
        config.expects("head_dim", config.integer("hidden_size") // heads.n_head)
        return read_turned(config, heads.d_head, 0.25, "hidden_size")

    @classmethod
    def read_more(cls, config: Config) -> dict[str, Any]:
        config.expects("qk_layernorm", False)
        config.expects("use_parallel_residual", False)
        return {}

    def values(self) -> dict[str, Any]:
        return super().values() | {"use_parallel_residual": False}

    def notes(self) -> Iterator[str]:
        yield from super().notes()
        if self.tied:
            yield "llama.cpp cannot load this file: it wants an output matrix apart from the embedding"

    def attention(self, hf: str, blk: str) -> Iterator[Row]:
        yield from self.heads.rows(hf, blk, self.n_embd, bias=self.attention_bias, out_bias=False)
