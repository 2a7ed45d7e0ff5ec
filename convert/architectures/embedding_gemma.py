"""EmbeddingGemma: a Gemma 3 whose tokens see those on both sides. arXiv:2509.20354"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from hybrid.quant.ggml.errors import CheckpointError
from hybrid.quant.ggml.families.embedding_gemma import EmbeddingGemmaHparams

from .gemma import Gemma3


@dataclass(frozen=True)
class EmbeddingGemma(Gemma3):
    """One encoder, with the dense layers after its pooling."""

    arch = "gemma-embedding"
    architectures = ("Gemma3TextModel",)
    hparams = EmbeddingGemmaHparams
    generates = False
    bidirectional = True
    n_layer_27b = 0
    without_effect: ClassVar[Mapping[str, str]] = {
        **Gemma3.without_effect,
        "final_logit_softcapping": "it has no logits",
    }

    def dense_keys(self, sizes: Sequence[tuple[int, int]]) -> list[tuple[str, Any]]:
        n = self.n_embd
        if len(sizes) != 2 or sizes[0][0] != n or sizes[1] != (sizes[0][1], n):
            raise CheckpointError(
                f"the dense layers of modules.json have sizes {list(sizes)}, expected two, from {n} values to {n}."
            )
        return [
            (f"dense_{i}_feat_{part}", size)
            for i, both in enumerate(sizes, 2)
            for part, size in zip(("in", "out"), both, strict=True)
        ]

    def canonical(self, name: str) -> str:
        return super().canonical(name if name.startswith("model.") else f"model.{name}")
