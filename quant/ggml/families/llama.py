"""Keys of Llama. n_rot: values of a head that RoPE rotates; d_head: values of a head; 0: n_embd / n_head. windows:
tokens that a token of a layer sees, 0: all. The key is ours, since llama.cpp ignores the window that its own key gives.
"""

from .experts import OptionalExpertsHparams
from .hparams import TransformerHparams, key
from .rope import RopeHparams


class LlamaHparams(RopeHparams, TransformerHparams, OptionalExpertsHparams):
    n_rot: int = key("rope.dimension_count", 0)
    d_head: int = key("attention.key_length", 0)
    windows: tuple[int, ...] = key("hybrid.attention.sliding_window", 0, per_layer=True)


class LayerNormLlamaHparams(LlamaHparams):
    eps: float = key("attention.layer_norm_epsilon")
