"""Cohere 2: attention beside the feed-forward part, layer norms without biases; windows and positions on three layers
of four. arXiv:2504.00698"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Self

from hybrid.quant.ggml.families.cohere2 import Cohere2Hparams
from hybrid.quant.ggml.families.hparams import by_period

from ..checkpoint import Config
from ..transforms import interleave_rope
from .blocks import Heads
from .family import Row, Shapes
from .llama import LLAMA, Llama
from .rope import UNSCALED
from .unused_fields import PICTURES
from .windows import read_layer_types, read_window, window_values, windows_of

KINDS = ("full_attention", "sliding_attention")
PERIOD = 4  # the last of every N layers has no window, where nothing says otherwise


@dataclass(frozen=True)
class Cohere2(Llama):
    """One model of Command R7B or Command A. Only layers with a window have positions. Rows of queries and keys are in
    llama.cpp's RoPE order."""

    arch = "cohere2"
    architectures = ("Cohere2ForCausalLM",)
    hparams: ClassVar[type[Any]] = Cohere2Hparams
    order = (
        f"{LLAMA} d_head=own_head .attention.value_length=own_head? logit_scale .vocab_size n_rot {UNSCALED} window? "
        "local?"
    )
    pre = ("command-r",)
    eps_key = "layer_norm_eps"
    norms: ClassVar[dict[str, str]] = {"input_layernorm": "attn_norm"}
    conditional: ClassVar[Mapping[str, str]] = {"sliding_window_pattern": "where layer_types is absent"}
    without_effect: ClassVar[Mapping[str, str]] = {
        **dict.fromkeys(
            ("layer_switch", "order_of_interleaved_layers"),
            "transformers goes by layer_types and sliding_window_pattern",
        ),
        "use_embedding_sharing": "tie_word_embeddings says it",
        "use_parallel_embedding": "only how it is computed",
    }
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
        local = read_layer_types(config, n_layer) or by_period(period, n_layer)
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

    def values(self) -> dict[str, Any]:
        own = {"own_head": None if self.heads.stated else self.heads.d_head}
        return super().values() | own | window_values(self.window, self.windows)

    turned: ClassVar[bool] = False  # rows of queries and keys are in Hugging Face's RoPE order

    def attention(self, hf: str, blk: str) -> Iterator[Row]:
        turned = interleave_rope(self.heads.d_head) if self.turned else None
        yield from self.heads.rows(hf, blk, self.n_embd, turned)


@dataclass(frozen=True)
class CohereCompass(Cohere2):
    """The text model of North Vision, with other orders of rows and defaults. Of Cohere."""

    architectures = ("CohereCompassForConditionalGeneration",)
    conditional: ClassVar[Mapping[str, str]] = {"tie_word_embeddings": "outside text_config, as in transformers"}
    without_effect: ClassVar[Mapping[str, str]] = {
        **PICTURES,
        **dict.fromkeys(
            (f"rope_parameters.{kind}.{name}" for kind in KINDS for name in ("mrope_section", "mrope_interleaved")),
            "only pictures: the three positions of a token of text are one",
        ),
        **dict.fromkeys(
            ("rope_parameters.rope_theta", "rope_parameters.rope_type", "rope_theta", "rope_scaling"),
            "rope_parameters has the settings of each kind of layer",
        ),
        "sliding_window_pattern": "layer_types says it; without it no layer has a window",
        "pooling": "only of embeddings, which other classes make",
    }
    dropped: ClassVar[tuple[str, ...]] = ("model.visual.",)
    turned = True

    @classmethod
    def read(cls, config: Config, shapes: Shapes) -> Self:
        text = config.section("text_config")
        # transformers asks the outer config
        data = {**text.data, "tie_word_embeddings": config.boolean("tie_word_embeddings", default=False)}
        return super().read(Config(data, text.where, text.looked, text.prefixes), shapes)

    @classmethod
    def read_rope(cls, config: Config) -> tuple[Config, float]:
        """RoPE of layers with a window. UnsupportedError: others have one."""
        rope = config.section("rope_parameters")
        rope.expects("full_attention")
        local = rope.section("sliding_attention")
        return local, local.number("rope_theta", default=cls.usual_theta)

    @classmethod
    def read_windows(cls, config: Config, n_layer: int) -> tuple[int, ...]:
        local = read_layer_types(config, n_layer) or [False] * n_layer
        return windows_of(config, read_window(config, 4096), local)

    @classmethod
    def read_more(cls, config: Config) -> dict[str, Any]:
        return {"window": read_window(config, 4096), "logit_scale": config.number("logit_scale", default=1.0)}

    def notes(self) -> Iterator[str]:
        yield from super().notes()
        if not self.tied:
            yield "llama.cpp cannot load this file: in this architecture the output matrix is the embedding"

    def canonical(self, name: str) -> str:
        return super().canonical(name.replace("model.language_model.", "model.", 1))
