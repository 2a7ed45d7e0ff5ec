"""Keys of MiniMax-M2."""

from .experts import SIGMOID, RoutedHparams
from .hparams import key
from .llama import LlamaHparams


class MiniMaxM2Hparams(LlamaHparams, RoutedHparams):
    n_ff_expert: int = key("expert_feed_forward_length", minimum=1)
    gating: int = key("expert_gating_func", SIGMOID)
