"""Keys of Falcon. exact: GELU by its definition, otherwise by its tanh formula, as in llama.cpp."""

from .hparams import TransformerHparams, key
from .rope import RopeHparams


class FalconHparams(RopeHparams, TransformerHparams):
    eps: float = key("attention.layer_norm_epsilon")
    exact: bool = key("hybrid.feed_forward.exact_gelu", False)
