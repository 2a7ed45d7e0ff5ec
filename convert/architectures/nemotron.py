"""Nemotron: layer norms, RoPE on half of every head, a squared ReLU without a gate. arXiv:2402.16819"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from hybrid.quant.ggml.families.llama import LayerNormLlamaHparams

from ..checkpoint import Config
from ..transforms import PLUS_ONE
from .blocks import Heads, read_turned
from .family import Row
from .llama import LLAMA, Llama
from .rope import UNSCALED
from .ungated import up_and_down


@dataclass(frozen=True)
class Nemotron(Llama):
    """One model of Nemotron 3 or 4, or Minitron. Weights of norms are stored minus 1."""

    arch = "nemotron"
    architectures = ("NemotronForCausalLM",)
    hparams = LayerNormLlamaHparams
    order: ClassVar[str] = f"{LLAMA} .vocab_size n_rot {UNSCALED}"
    activations = ("relu2",)
    eps_key = "norm_eps"
    norm_bias = True
    usual_ctx, usual_eps = 4096, 1e-5

    @classmethod
    def read_turned(cls, config: Config, heads: Heads) -> int:
        return read_turned(config, heads.d_head, 0.5, "partial_rotary_factor")

    def notes(self) -> Iterator[str]:
        yield from super().notes()
        if self.tied:
            yield "llama.cpp cannot load this file: it wants an output matrix apart from the embedding"

    def rows(self) -> Iterator[Row]:
        for one in super().rows():
            yield replace(one, transform=PLUS_ONE) if one.target.endswith("_norm.weight") else one

    def attention(self, hf: str, blk: str) -> Iterator[Row]:
        yield from self.heads.rows(hf, blk, self.n_embd, bias=self.attention_bias)

    def feed_forward(self, hf: str, blk: str, i: int) -> Iterator[Row]:
        yield from up_and_down(hf, blk, self.n_embd, self.n_ff, bias=self.mlp_bias)


@dataclass(frozen=True)
class Jais2(Nemotron):
    """One model of Jais 2: whole heads rotated, weights of norms unchanged."""

    arch = "jais2"
    architectures = ("Jais2ForCausalLM",)
    order = f"{LLAMA} n_rot"
    pre = ("jais-2",)
    eps_key = "layer_norm_eps"
    usual_ctx, usual_bias = 8192, True

    @classmethod
    def read_biases(cls, config: Config) -> dict[str, Any]:
        return {**super().read_biases(config), "mlp_bias": config.boolean("mlp_bias", default=True)}

    @classmethod
    def read_turned(cls, config: Config, heads: Heads) -> int:
        heads.require_even(config)
        return heads.d_head

    def notes(self) -> Iterator[str]:
        yield from Llama.notes(self)
        if not (self.attention_bias and self.mlp_bias):
            yield "llama.cpp cannot load this file: in this architecture all matrices of layers have biases"

    def rows(self) -> Iterator[Row]:
        yield from Llama.rows(self)
