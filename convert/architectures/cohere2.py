"""Cohere 2: attention beside the feed-forward part, layer norms without biases; windows and positions on three layers
of four. arXiv:2504.00698"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from ..checkpoint import Config
from .blocks import Heads, all_but_last
from .family import Row
from .llama import Llama
from .windows import known_window_keys, read_layer_types, read_window, windows_of

PERIOD = 4  # the last of so many layers has no window, where nothing says otherwise


@dataclass(frozen=True)
class Cohere2(Llama):
    """One model of Command R7B or Command A. Only layers with a window have positions. Rows of queries and keys are in
    the order of llama.cpp's RoPE."""

    arch = "cohere2"
    architectures = ("Cohere2ForCausalLM",)
    pre = ("command-r",)
    eps_keys = ("layer_norm_eps", "attention.layer_norm_epsilon")
    norms: ClassVar[dict[str, str]] = {"input_layernorm": "attn_norm"}
    conditional: ClassVar[Mapping[str, str]] = {"sliding_window_pattern": "where layer_types is absent"}
    without_effect: ClassVar[Mapping[str, str]] = {
        **dict.fromkeys(
            ("layer_switch", "order_of_interleaved_layers"),
            "transformers goes by layer_types and sliding_window_pattern",
        ),
        "use_embedding_sharing": "tie_word_embeddings says it", "use_parallel_embedding": "only how it is computed",
    }  # fmt: skip
    usually_tied = True
    usual_ctx, usual_eps = 8192, 1e-5
    known_windows = True

    window: int
    logit_scale: float  # of the logits

    @classmethod
    def read_biases(cls, config: Config) -> dict[str, Any]:
        config.expects("attention_bias", False)
        return {"attention_bias": False, "mlp_bias": False}

    @classmethod
    def read_turned(cls, config: Config, heads: Heads) -> int:
        config.expects("head_dim", config.integer("hidden_size") // heads.n_head)
        return super().read_turned(config, heads)

    @classmethod
    def read_windows(cls, config: Config, n_layer: int) -> tuple[int, ...]:
        period = config.integer("sliding_window_pattern", default=PERIOD)
        local = read_layer_types(config, n_layer) or all_but_last(period, n_layer)
        return windows_of(config, read_window(config, 4096), local)

    @classmethod
    def read_more(cls, config: Config) -> dict[str, Any]:
        config.expects("tie_word_embeddings", True)
        config.expects("use_qk_norm", False)
        config.expects("use_parallel_block", True)
        config.expects("use_gated_activation", True)
        config.expects("position_embedding_type", "rope_gptj")
        config.expects("rotary_pct", 1.0, 1)
        scale = config.number("logit_scale", default=0.0625)
        return {"window": read_window(config, 4096), "logit_scale": scale}

    def more_keys(self) -> Iterator[tuple[str, Any]]:
        if not self.heads.stated:
            yield from self.heads.keys()
        yield "logit_scale", self.logit_scale
        yield "vocab_size", self.n_vocab
        yield "rope.dimension_count", self.n_rot
        if not self.scaling.keys:
            yield "rope.scaling.type", "none"

    def window_keys(self) -> Iterator[tuple[str, Any]]:
        yield from known_window_keys(self.window, self.windows, PERIOD)

    def attention(self, hf: str, blk: str) -> Iterator[Row]:
        yield from self.heads.rows(hf, blk, self.n_embd)
