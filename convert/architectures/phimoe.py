"""Phi-MoE: Llama with layer norms, biases of attention and two experts weighted by a sparse mixer. arXiv:2404.14219"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from hybrid.quant.ggml.errors import UnsupportedError
from hybrid.quant.ggml.families.phimoe import PhiMoeHparams

from ..checkpoint import Config
from .blocks import NUMBERED, Heads, stacked_experts
from .family import Row, row
from .llama import LLAMA
from .phi3 import Phi3
from .rope import read_kind

USUAL_JITTER = 0.01
KINDS = ("default", "longrope", "su")


@dataclass(frozen=True)
class PhiMoe(Phi3):
    """One model. With two sets of frequencies (LongRoPE), the context length of a run decides, as in Phi-3."""

    arch = "phimoe"
    architectures = ("PhiMoEForCausalLM", "PhimoeForCausalLM")
    hparams = PhiMoeHparams
    order = f"{LLAMA} n_rot original=own_ctx .attention.sliding_window n_expert_used n_expert jitter? windows?"
    n_expert_used = 2
    pre = ()
    without_effect: ClassVar[Mapping[str, str]] = {
        "input_jitter_noise": "only training: noise of what routers read",
        "mlp_bias": "its experts have no biases, as in transformers",
    }
    norm_bias = True
    usual_ctx, usual_theta, original_ctx = 131072, 1e6, 0

    n_expert: int
    jitter: float  # of the sparse mixer
    head_bias: bool

    @classmethod
    def read_rope(cls, config: Config) -> tuple[Config, float]:
        """RoPE and its base, with the factor of cos and sin under the name that other classes use."""
        rope, theta = super().read_rope(config)
        kind = read_kind(rope)
        if kind not in KINDS:
            raise UnsupportedError(f"{rope.where}: rope_type = {kind!r} is not supported, only {', '.join(KINDS)} are.")
        if kind == "default":
            return rope, theta
        short, long = rope.number("short_mscale"), rope.number("long_mscale")
        if short != long:
            raise UnsupportedError(
                f"{rope.where}: short_mscale = {short:g} and long_mscale = {long:g} are not supported, "
                "only the same number for both is."
            )
        return Config({"attention_factor": short}, rope.where, rope.looked, rope.prefixes).over(rope), theta

    @classmethod
    def read_turned(cls, config: Config, heads: Heads) -> int:
        heads.require_even(config)
        return heads.d_head

    @classmethod
    def read_biases(cls, config: Config) -> dict[str, Any]:
        return {"attention_bias": config.boolean("attention_bias", default=False), "mlp_bias": False}

    @classmethod
    def read_more(cls, config: Config) -> dict[str, Any]:
        config.expects("num_experts_per_tok", 2)
        jitter = config.number("router_jitter_noise", default=USUAL_JITTER, positive=False)
        if jitter < 0:
            raise config.wrong("router_jitter_noise", "a number that is not negative")
        return {
            "n_expert": config.integer("num_local_experts", default=16, minimum=2, maximum=4096),
            "jitter": jitter,
            "head_bias": config.boolean("lm_head_bias", default=False),
        }

    def notes(self) -> Iterator[str]:
        yield from super().notes()
        if self.tied or not (self.attention_bias and self.head_bias):
            yield (
                "llama.cpp cannot load this file: in this architecture it wants an output matrix apart from the "
                "embedding, and biases of it and of attention"
            )
        yield (
            "llama.cpp takes RMS norms and one softmax of both experts in this architecture, where transformers and "
            "this toolkit have layer norms and a sparse mixer: its results differ"
        )

    def rows(self) -> Iterator[Row]:
        yield from super().rows()
        if self.head_bias:
            yield row("lm_head.bias", "output.bias", self.n_vocab)

    def attention(self, hf: str, blk: str) -> Iterator[Row]:
        yield from self.heads.rows(hf, blk, self.n_embd, bias=self.attention_bias)

    def feed_forward(self, hf: str, blk: str, i: int) -> Iterator[Row]:
        hf = hf.removesuffix("mlp.") + "block_sparse_moe."
        yield row(hf + "gate.weight", blk + "ffn_gate_inp.weight", self.n_expert, self.n_embd)
        yield from stacked_experts(hf + "experts.", blk, self.n_expert, self.n_embd, self.n_ff, NUMBERED)
