"""OLMoE and OLMo 2: norms on the whole of queries and keys; norms behind the parts of OLMo 2. arXiv:2409.02060"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

from ..checkpoint import Config
from .blocks import stacked_experts
from .family import Row, row
from .llama import Llama


@dataclass(frozen=True)
class Olmo2(Llama):
    """OLMo 2, dense. arXiv:2501.00656"""

    arch = "olmo2"
    architectures: ClassVar[tuple[str, ...]] = ("Olmo2ForCausalLM",)
    pre = ("olmo", "dbrx")
    norms: ClassVar[dict[str, str]] = {
        "post_attention_layernorm": "post_attention_norm",
        "post_feedforward_layernorm": "post_ffw_norm",
    }

    @classmethod
    def read_more(cls, config: Config) -> dict[str, Any]:
        config.expects("clip_qkv")
        return {}

    def more_keys(self) -> Iterator[tuple[str, Any]]:
        yield from ()

    def attention(self, hf: str, blk: str) -> Iterator[Row]:
        heads = self.heads
        yield from heads.rows(hf, blk, self.n_embd, bias=self.attention_bias)
        yield row(hf + "q_norm.weight", blk + "attn_q_norm.weight", heads.n_head * heads.d_head)
        yield row(hf + "k_norm.weight", blk + "attn_k_norm.weight", heads.n_kv * heads.d_head)

    def notes(self) -> Iterator[str]:
        yield from super().notes()
        if self.tied:
            yield "llama.cpp cannot load this file: it wants an output matrix apart from the embedding"


@dataclass(frozen=True)
class Olmoe(Olmo2):
    """With experts on all layers, and norms before the parts as in Llama."""

    arch = "olmoe"
    architectures = ("OlmoeForCausalLM",)
    norms = Llama.norms

    n_expert: int
    n_expert_used: int

    @classmethod
    def read_more(cls, config: Config) -> dict[str, Any]:
        config.expects("norm_topk_prob", False)
        n_expert = config.integer("num_experts", maximum=4096)
        used = config.integer("num_experts_per_tok", maximum=n_expert)
        return super().read_more(config) | {"n_expert": n_expert, "n_expert_used": used}

    def more_keys(self) -> Iterator[tuple[str, Any]]:
        yield "expert_count", self.n_expert
        yield "expert_used_count", self.n_expert_used

    def feed_forward(self, hf: str, blk: str) -> Iterator[Row]:
        yield row(hf + "gate.weight", blk + "ffn_gate_inp.weight", self.n_expert, self.n_embd)
        names = tuple((part, part + "_proj") for part in ("down", "gate", "up"))
        yield from stacked_experts(hf + "experts.", blk, self.n_expert, self.n_embd, self.n_ff, names)
