"""Keys of SmolLM3. turned: layers with RoPE. The key is ours; llama.cpp knows one order of layers."""

from .hparams import key
from .llama import LlamaHparams


class SmolLM3Hparams(LlamaHparams):
    turned: tuple[bool, ...] = key("hybrid.rope.layer_pattern", 4, pattern=True)
