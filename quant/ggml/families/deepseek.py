"""Keys of DeepSeekMoE. Weights of experts do not add up to 1 unless the file says so."""

from .experts import RoutedHparams
from .hparams import key
from .llama import LlamaHparams


class DeepSeekHparams(LlamaHparams, RoutedHparams):
    weights_norm: bool = key("expert_weights_norm", False)
