"""gpt-oss: attention with a sink in every head, over a window on every other layer; experts. arXiv:2508.10925"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Self

from hybrid.quant.ggml.families.gpt_oss import GptOssHparams
from hybrid.quant.ggml.families.hparams import by_period

from ..checkpoint import Config
from ..checkpoint.mxfp4 import BLOCKS
from ..transforms import every_other_column, every_other_row, transposed
from .family import Row, Shapes, row
from .llama import LLAMA, Llama
from .windows import read_layer_types, read_window

ALPHA, LIMIT = 1.702, 7.0  # of the experts' gates; llama.cpp has no others, for which we have keys
# transformers' defaults
_DEFAULTS: dict[str, Any] = {
    "head_dim": 64,
    "num_key_value_heads": 8,
    "num_attention_heads": 64,
    "num_local_experts": 128,
}
_YARN: dict[str, Any] = {
    "rope_type": "yarn",
    "factor": 32.0,
    "beta_fast": 32.0,
    "beta_slow": 1.0,
    "truncate": False,
    "original_max_position_embeddings": 4096,
}


@dataclass(frozen=True)
class GptOss(Llama):
    """One model of gpt-oss. Its experts may be published in MXFP4, which GGUF has also."""

    arch = "gpt-oss"
    architectures = ("GptOssForCausalLM",)
    hparams = GptOssHparams
    order = (
        f"{LLAMA.replace('n_ff', '.feed_forward_length=n_ff')} n_expert n_expert_used window n_ff_expert=n_ff local? "
        "alpha? limit?"
    )
    pre = ("gpt-4o",)
    conditional: ClassVar[Mapping[str, str]] = {
        **Llama.conditional,
        "rope_theta": "where rope_parameters does not say it",
        "rope_scaling": "where rope_parameters is absent",
    }
    without_effect: ClassVar[Mapping[str, str]] = {
        "hidden_act": "the gate of its experts is always the clamped one, as in transformers",
        "initial_context_length": "original_max_position_embeddings of RoPE's settings counts, as in transformers",
        "experts_per_token": "num_experts_per_tok counts, as in transformers",
    }
    norms: ClassVar[dict[str, str]] = {
        "input_layernorm": "attn_norm",
        "post_attention_layernorm": "post_attention_norm",
    }
    activations: ClassVar[tuple[str, ...]] = ()
    usual_bias = True
    usual_ctx = 131072
    usual_eps = 1e-5
    usual_theta = 150000.0

    window: int  # of the layers that are local
    local: tuple[bool, ...]
    n_expert: int
    n_expert_used: int
    alpha: float
    limit: float
    packed: bool  # experts are MXFP4

    @classmethod
    def read(cls, config: Config, shapes: Shapes) -> Self:
        whole = {**_DEFAULTS, **config.data}
        if not (whole.get("rope_parameters") or whole.get("rope_scaling")):
            whole["rope_parameters"] = _YARN
        model = super().read(Config(whole, config.where, config.looked, config.prefixes), shapes)
        packed = any(name.endswith(BLOCKS) for name in shapes)
        return type(model)(**{**vars(model), "packed": packed})

    @classmethod
    def read_more(cls, config: Config) -> dict[str, Any]:
        n_layer = config.integer("num_hidden_layers")
        n_expert = config.integer("num_local_experts", "num_experts", maximum=4096)
        window = read_window(config, 128)
        local = tuple(read_layer_types(config, n_layer) or by_period(2, n_layer))
        if any(local) and not window:
            raise config.wrong("sliding_window", "a number of tokens, for the layers of sliding_attention")
        return {
            "window": window,
            "local": local,
            "n_expert": n_expert,
            "n_expert_used": config.integer("num_experts_per_tok", default=4, maximum=n_expert),
            "alpha": config.number("swiglu_alpha", default=ALPHA),
            "limit": config.number("swiglu_limit", default=LIMIT),
            "packed": False,
        }

    def notes(self) -> Iterator[str]:
        yield from super().notes()
        if (self.alpha, self.limit) != (ALPHA, LIMIT):
            yield f"llama.cpp takes swiglu_alpha = {ALPHA:g} and swiglu_limit = {LIMIT:g} whatever the file says"
        if not self.attention_bias:
            yield "llama.cpp cannot load this file: there what attention returns has a bias, here it has none"

    def attention(self, hf: str, blk: str) -> Iterator[Row]:
        yield from self.heads.rows(hf, blk, self.n_embd, bias=self.attention_bias)
        yield row(hf + "sinks", blk + "attn_sinks.weight", self.heads.n_head)

    def feed_forward(self, hf: str, blk: str, i: int) -> Iterator[Row]:
        n, n_ff, n_expert = self.n_embd, self.n_ff, self.n_expert
        yield row(hf + "router.weight", blk + "ffn_gate_inp.weight", n_expert, n)
        yield row(hf + "router.bias", blk + "ffn_gate_inp.bias", n_expert)
        both, down = hf + "experts.gate_up_proj", hf + "experts.down_proj"
        for first, part in enumerate(("gate", "up")):
            source, shape, turned = both, (n_expert, n, 2 * n_ff), every_other_column(n, 2 * n_ff, first)
            if self.packed:
                source, shape, turned = both + BLOCKS, (n_expert, 2 * n_ff, n), every_other_row(2 * n_ff, first)
            target = f"{blk}ffn_{part}_exps"
            yield row(source, target + ".weight", n_expert, n_ff, n, source_shape=shape, transform=turned)
            yield row(
                both + "_bias",
                target + ".bias",
                n_expert,
                n_ff,
                source_shape=(n_expert, 2 * n_ff),
                transform=every_other_row(2 * n_ff, first),
            )
        target = blk + "ffn_down_exps.weight"
        if self.packed:
            yield row(down + BLOCKS, target, n_expert, n, n_ff)
        else:
            turned = transposed(n_ff, n)
            yield row(down, target, n_expert, n, n_ff, source_shape=(n_expert, n_ff, n), transform=turned)
        yield row(down + "_bias", blk + "ffn_down_exps.bias", n_expert, n)
