"""Granite 3: Llama with four factors. Of ibm-granite."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from hybrid.quant.ggml.families.granite import GraniteHparams

from ..checkpoint import Config
from .llama import LLAMA_HEADS, Llama

SCALES = "attention_scale embedding_scale residual_scale logit_scale"  # words of Family.order
_SCALES = {
    "attention_scale": "attention_multiplier",
    "embedding_scale": "embedding_multiplier",
    "residual_scale": "residual_multiplier",
    "logit_scale": "logits_scaling",
}


def read_scales(config: Config) -> dict[str, float]:
    """The four factors by their names in GraniteHparams."""
    return {name: config.number(key, default=1.0) for name, key in _SCALES.items()}


@dataclass(frozen=True)
class Granite(Llama):
    """One model of Granite 3, all attention, dense."""

    arch = "granite"
    architectures = ("GraniteForCausalLM",)
    hparams = GraniteHparams
    order = f"{LLAMA_HEADS} .vocab_size n_rot {SCALES}"
    pre = ("dbrx", "refact")

    scales: Mapping[str, float]

    @classmethod
    def read_more(cls, config: Config) -> dict[str, Any]:
        return {"scales": read_scales(config)}

    def values(self) -> dict[str, Any]:
        return {**super().values(), **self.scales}
