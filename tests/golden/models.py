"""Reference checkpoints with transformers' results in float32."""

import json
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from families import merged

# Largest difference between the reference's own float32 and float64 logits: an independent float32 implementation
# cannot be expected to differ by less than a few times this.
NOISE: dict[str, float] = merged("noise")
# Factor of the file's embedding, if it is not a key of the file.
EMBEDDING_SCALE = {"falcon-h1": 3.0, "falcon-h1-gate": 2.4}
SCALED_BY_THE_LOOKUP = ("gemma4",)  # in transformers the embedding itself multiplies
BUNDLED = "jamba-11m"
IN_REPOSITORY = ("jamba-11m", "jamba-dense", "mamba-bf16", "falcon-mamba", "llama-unigram-bin")
SHARED_NAMES = {"jamba-11m": "jamba-trained-bf16"}
PROMPTS = ("short", "p64", "p300")


@dataclass(frozen=True)
class Golden:
    """One checkpoint: `source` is its Hugging Face folder, `folder` has the reference's results."""

    name: str
    source: Path
    folder: Path

    @cached_property
    def prompts(self) -> dict[str, Any]:
        return json.loads((self.folder / "prompts.json").read_text())

    @cached_property
    def greedy(self) -> dict[str, Any]:
        return json.loads((self.folder / "greedy.json").read_text())

    @cached_property
    def logits(self) -> dict[str, np.ndarray]:
        with np.load(self.folder / "logits.npz") as file:
            return dict(file)

    @cached_property
    def layers(self) -> dict[str, np.ndarray]:
        with np.load(self.folder / "layers_short.npz") as file:
            return dict(file)

    def ids(self, prompt: str) -> list[int]:
        return self.prompts[prompt]["ids"]

    def last_logits(self, prompt: str) -> np.ndarray:
        """f32 [n, n_vocab]: of all positions, or of the last 16."""
        name = f"{prompt}_logits"
        return self.logits[name] if name in self.logits else self.logits[f"{name}_last16"]
