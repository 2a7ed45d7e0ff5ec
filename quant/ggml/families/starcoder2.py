"""Keys of StarCoder2 and Phi-2. n_rot: values of a head that RoPE turns, 0: all; windows: tokens that a token of a
layer sees, 0: all."""

from .hparams import TransformerHparams, key
from .rope import RopeHparams


class StarCoder2Hparams(RopeHparams, TransformerHparams):
    eps: float = key("attention.layer_norm_epsilon")
    n_rot: int = key("rope.dimension_count", 0)
    windows: tuple[int, ...] = key("hybrid.attention.sliding_window", 0, per_layer=True)
