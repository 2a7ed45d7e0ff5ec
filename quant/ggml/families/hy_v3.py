"""Keys of Hy3. Layers with a router have experts, and a shared one of n_ff_shared values; 0: as wide as an expert."""

from .experts import SIGMOID, RoutedHparams
from .hparams import key
from .llama import LlamaHparams


class HyV3Hparams(LlamaHparams, RoutedHparams):
    n_ff_shared: int = key("expert_shared_feed_forward_length", 0)
    weights_norm: bool = key("expert_weights_norm", False)
    gating: int = key("expert_gating_func", SIGMOID)
