"""Keys of dots.llm1. Weights of experts do not add up to 1 unless the file says so."""

from .experts import RoutedHparams
from .hparams import key
from .llama import LlamaHparams


class Dots1Hparams(LlamaHparams, RoutedHparams):
    n_shared: int = key("expert_shared_count")
    weights_norm: bool = key("expert_weights_norm", False)
