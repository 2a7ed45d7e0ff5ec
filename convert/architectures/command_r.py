"""Command R: attention beside the feed-forward part, layer norms without biases. Of Cohere."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

from hybrid.quant.ggml.families.command_r import CommandRHparams

from ..checkpoint import Config
from .cohere2 import Cohere2
from .family import Shapes
from .llama import LLAMA
from .rope import UNSCALED


@dataclass(frozen=True)
class CommandR(Cohere2):
    """One model of Command R or Aya: a Cohere 2 without windows, with positions on all layers."""

    arch = "command-r"
    architectures = ("CohereForCausalLM",)
    hparams = CommandRHparams
    order = f"{LLAMA} logit_scale {UNSCALED}"
    conditional: ClassVar[Mapping[str, str]] = {"max_position_embeddings": "where model_max_length is absent"}
    without_effect: ClassVar[Mapping[str, str]] = {}
    usual_theta = 500000.0
    known_windows = False

    @classmethod
    def read(cls, config: Config, shapes: Shapes) -> Self:
        """Published configs state the context length in model_max_length, which llama.cpp uses."""
        model = super().read(config, shapes)
        return replace(model, n_ctx=config.integer("model_max_length", default=model.n_ctx))

    @classmethod
    def read_windows(cls, config: Config, n_layer: int) -> tuple[int, ...]:
        return (0,) * n_layer

    @classmethod
    def read_more(cls, config: Config) -> dict[str, Any]:
        config.expects("tie_word_embeddings", True)
        config.expects("use_qk_norm", False)
        return {"window": 0, "logit_scale": config.number("logit_scale", default=0.0625)}
