"""Granite 3: Llama with four factors. Of ibm-granite."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from ..checkpoint import Config
from .llama import Llama

SCALES = {
    "attention.scale": "attention_multiplier",
    "embedding_scale": "embedding_multiplier",
    "residual_scale": "residual_multiplier",
    "logit_scale": "logits_scaling",
}


def read_scales(config: Config) -> tuple[tuple[str, float], ...]:
    """The four factors by their keys in GGUF."""
    return tuple((key, config.number(name, default=1.0)) for key, name in SCALES.items())


@dataclass(frozen=True)
class Granite(Llama):
    """One model of Granite 3, all attention, dense."""

    arch = "granite"
    architectures = ("GraniteForCausalLM",)
    pre = ("dbrx", "refact")

    scales: tuple[tuple[str, float], ...]

    @classmethod
    def read_more(cls, config: Config) -> dict[str, Any]:
        return {"scales": read_scales(config)}

    def more_keys(self) -> Iterator[tuple[str, Any]]:
        yield from super().more_keys()
        yield from self.scales
