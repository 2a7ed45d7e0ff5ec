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
NOISE = {
    "jamba-dense": 2.3e-5,
    "jamba-moe": 1.7e-5,
    "jamba-11m": 8.6e-6,
    "mamba-f32": 1.0e-5,
    "mamba-bf16": 1.1e-5,
    "mamba-trained-bf16": 8.6e-6,
    "falcon-mamba": 1.1e-5,
    "llama": 8.8e-6,
    "mamba2": 1.1e-5,
    "granite-dense": 4.8e-5,
    "granite-moe": 3.0e-5,
    "bamba": 5.5e-5,
    "llama-unigram-bin": 1.3e-5,
    "falcon-h1": 2.1e-5,
    "nemotron-h": 1.1e-5,
    "nemotron-h-moe": 1.2e-5,
    "nemotron-h-moe-v5": 1.4e-5,
    "lfm2": 1.9e-5,
    "qwen3-next": 5.5e-5,
    "qwen3_5": 5.1e-5,
    "recurrent-gemma": 1.6e-5,
    "zamba": 4.0e-5,
    "zamba2": 2.4e-5,
    "zamba-many": 6.3e-5,
    "zamba2-plain": 2.4e-5,
    "mamba-bias": 1.2e-5,
    "falcon-h1-gate": 6.4e-5,
    "jamba-bias": 1.3e-5,
    "mistral-window": 1.7e-5,
    "smollm3": 1.4e-5,
    "kimi-linear": 2.4e-5,
    "lfm3": 2.2e-5,
    "gemma4": 7.3e-5,
    "zaya": 1.1e-5,
    "minimax": 1.0e-5,
    "bailing-hybrid": 2.2e-5,
    "gpt-oss": 9.8e-5,
    "ministral3": 2.1e-5,
    "glm5-next": 4.0e-5,
    "qwen4-exp": 1.8e-5,
    "deepseek-v4": 2.2e-5,
    **merged("noise"),
}
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
