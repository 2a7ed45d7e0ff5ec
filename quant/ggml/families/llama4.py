"""Keys of Llama 4. chunked: layers whose tokens see only their chunk of `chunk` tokens; window 0: no layer is chunked.
turned: layers with RoPE. On the others queries at p are times 1 + temperature * log(1 + floor((p + 1) / period))."""

from .hparams import key
from .llama import LlamaHparams


class Llama4Hparams(LlamaHparams):
    window: int = key("attention.sliding_window", 8192)
    chunk: int = key("hybrid.attention.chunk_size", 8192, minimum=1)
    chunked: tuple[bool, ...] = key("attention.sliding_window_pattern", 4, pattern=True)
    turned: tuple[bool, ...] = key("hybrid.rope.layer_pattern", 4, pattern=True)
    temperature: float = key("attention.temperature_scale", 0.1)
    period: int = key("attention.temperature_length", 8192, minimum=1)
    n_ff_expert: int = key("expert_feed_forward_length", 0)
