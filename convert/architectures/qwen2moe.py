"""Qwen2-MoE: Qwen2 with experts beside a shared one, which has a gate. arXiv:2407.10671"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from hybrid.quant.ggml.families.qwen2moe import Qwen2MoeHparams

from ..checkpoint import Config
from .blocks import swiglu
from .family import Row, row
from .llama import LLAMA
from .qwen2 import Qwen2, Qwen3Moe
from .windows import read_layer_types, read_window, windows_of


@dataclass(frozen=True)
class Qwen2Moe(Qwen3Moe):
    """One model of Qwen1.5-MoE or Qwen2-MoE: biases in place of norms on queries and keys."""

    arch = "qwen2moe"
    architectures = ("Qwen2MoeForCausalLM",)
    hparams = Qwen2MoeHparams
    order = f"{LLAMA} n_expert n_expert_used n_ff_expert weights_norm? n_ff_shared windows?"
    conditional: ClassVar[Mapping[str, str]] = Qwen2.conditional
    without_effect: ClassVar[Mapping[str, str]] = {}
    weights_normed = False

    n_ff_shared: int
    qkv_bias: bool

    @classmethod
    def read_biases(cls, config: Config) -> dict[str, Any]:
        return {"attention_bias": False, "mlp_bias": False}  # the key here is qkv_bias

    @classmethod
    def read_windows(cls, config: Config, n_layer: int) -> tuple[int, ...]:
        """Windows on the layers that layer_types names, else on every other one of the first max_window_layers."""
        uses = config.boolean("use_sliding_window", default=False)
        window = read_window(config, 4096) if uses else 0
        local = read_layer_types(config, n_layer)
        if local is None:
            end = config.integer("max_window_layers", default=28, minimum=0) if window else 0
            local = [i % 2 == 0 and i < end for i in range(n_layer)]
        return windows_of(config, window, local)

    @classmethod
    def read_more(cls, config: Config) -> dict[str, Any]:
        return {
            **super().read_more(config),
            "n_ff_shared": config.integer("shared_expert_intermediate_size"),
            "qkv_bias": config.boolean("qkv_bias", default=True),
        }

    def notes(self) -> Iterator[str]:
        yield from super().notes()
        if self.tied:
            yield "llama.cpp cannot load this file: it wants an output matrix apart from the embedding"

    def attention(self, hf: str, blk: str) -> Iterator[Row]:
        yield from self.heads.rows(hf, blk, self.n_embd, bias=self.qkv_bias, out_bias=False)

    def feed_forward(self, hf: str, blk: str, i: int) -> Iterator[Row]:
        yield from super().feed_forward(hf, blk, i)
        if self.moe[i]:
            yield from swiglu(hf + "shared_expert.", blk, self.n_embd, self.n_ff_shared, "_shexp")
            yield row(hf + "shared_expert_gate.weight", blk + "ffn_gate_inp_shexp.weight", 1, self.n_embd)
