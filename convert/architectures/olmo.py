"""OLMoE, OLMo 2 and OLMo 3: norms on the whole of queries and keys; in 2 and 3, norms after the parts, in 3 windows on
three layers of four. arXiv:2409.02060"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from hybrid.quant.ggml.families.hparams import by_period
from hybrid.quant.ggml.families.olmo import Olmo2Hparams, OlmoeHparams

from ..checkpoint import Config
from .blocks import attention_bias_notes, refuse_scaling, stacked_experts
from .experts import weights_norm_note
from .family import Family, Row, row
from .llama import LLAMA, Llama
from .windows import read_layer_types, read_window, windows_of


@dataclass(frozen=True)
class Olmo2(Llama):
    """OLMo 2, dense. arXiv:2501.00656"""

    arch = "olmo2"
    architectures: ClassVar[tuple[str, ...]] = ("Olmo2ForCausalLM",)
    hparams: ClassVar[type[Any]] = Olmo2Hparams
    order = f"{LLAMA} windows?"
    pre = ("olmo", "dbrx")
    usual_eps = 1e-5
    norms: ClassVar[dict[str, str]] = {
        "post_attention_layernorm": "post_attention_norm",
        "post_feedforward_layernorm": "post_ffw_norm",
    }

    def attention(self, hf: str, blk: str) -> Iterator[Row]:
        heads = self.heads
        yield from heads.rows(hf, blk, self.n_embd, bias=self.attention_bias)
        yield row(hf + "q_norm.weight", blk + "attn_q_norm.weight", heads.n_head * heads.d_head)
        yield row(hf + "k_norm.weight", blk + "attn_k_norm.weight", heads.n_kv * heads.d_head)

    def notes(self) -> Iterator[str]:
        yield from super().notes()
        if self.tied:
            yield "llama.cpp cannot load this file: it wants an output matrix apart from the embedding"
        yield from attention_bias_notes(self.attention_bias)


@dataclass(frozen=True)
class Olmo3(Olmo2):
    """OLMo 3, as llama.cpp stores it: an OLMo 2 with windows on all layers but every fourth. arXiv:2512.13961"""

    architectures = ("Olmo3ForCausalLM",)
    order = f"{LLAMA} freq_base_local=local_theta window? local"
    conditional: ClassVar[Mapping[str, str]] = {
        **Olmo2.conditional,
        **dict.fromkeys(("rope_theta", "rope_scaling"), "where rope_parameters does not say it"),
    }
    usual_theta = 500000.0
    known_windows = True

    local_theta: float  # base of RoPE where there is a window

    @classmethod
    def read_windows(cls, config: Config, n_layer: int) -> tuple[int, ...]:
        local = read_layer_types(config, n_layer) or by_period(4, n_layer)
        return windows_of(config, read_window(config, 4096), local)

    @classmethod
    def read_rope(cls, config: Config) -> tuple[Config, float]:
        """RoPE of layers without a window; only these can be scaled."""
        rope = config.section("rope_parameters")
        if rope.data and not rope.data.get("full_attention"):
            raise config.wrong("rope_parameters", "an object full_attention, and one sliding_attention, in it")
        full = config.section("rope_scaling").over(rope.section("full_attention"))
        return full, full.number("rope_theta", default=config.number("rope_theta", default=cls.usual_theta))

    @classmethod
    def read_more(cls, config: Config) -> dict[str, Any]:
        local = config.section("rope_parameters").section("sliding_attention")
        refuse_scaling(local)
        return {"local_theta": local.number("rope_theta", default=cls.usual_theta)}

    def notes(self) -> Iterator[str]:
        yield from super().notes()
        if self.local_theta != self.freq_base:
            yield "llama.cpp turns queries and keys with one rope_theta on all layers: its results differ"


@dataclass(frozen=True)
class Olmoe(Olmo2):
    """One model with experts on all layers, and norms before the parts as in Llama."""

    arch = "olmoe"
    architectures = ("OlmoeForCausalLM",)
    hparams = OlmoeHparams
    order = f"{LLAMA} n_expert n_expert_used weights_norm? clip?"
    usual_ctx = 4096
    norms = Llama.norms

    n_expert: int
    n_expert_used: int
    weights_norm: bool
    clip: float  # limit of queries, keys and values; 0: none

    @classmethod
    def read_more(cls, config: Config) -> dict[str, Any]:
        config.expects("sliding_window")
        n_expert = config.integer("num_local_experts", "num_experts", maximum=4096)
        return {
            "n_expert": n_expert,
            "n_expert_used": config.integer("num_experts_per_tok", maximum=n_expert),
            "weights_norm": config.boolean("norm_topk_prob", default=False),
            "clip": config.number("clip_qkv", default=0.0),
        }

    def notes(self) -> Iterator[str]:
        yield from super().notes()
        if self.weights_norm:
            yield weights_norm_note(self.weights_norm)
        if self.clip:
            yield "llama.cpp passes over clip_qkv: it has no key for it in this architecture"

    def feed_forward(self, hf: str, blk: str, i: int) -> Iterator[Row]:
        yield row(hf + "gate.weight", blk + "ffn_gate_inp.weight", self.n_expert, self.n_embd)
        names = tuple((part, part + "_proj") for part in ("down", "gate", "up"))
        yield from stacked_experts(hf + "experts.", blk, self.n_expert, self.n_embd, self.n_ff, names)


@dataclass(frozen=True)
class FlexOlmo(Olmoe):
    """FlexOlmo: an OLMoE with the norms of OLMo 2. arXiv:2507.07024"""

    arch = "flex-olmo"
    architectures = ("FlexOlmoForCausalLM",)
    in_llama_cpp = False
    usual_eps, usual_theta = 1e-6, 500000.0
    norms = Olmo2.norms

    @classmethod
    def read_more(cls, config: Config) -> dict[str, Any]:
        config.expects("clip_qkv")
        return super().read_more(config)

    def notes(self) -> Iterator[str]:
        yield from Family.notes(self)
