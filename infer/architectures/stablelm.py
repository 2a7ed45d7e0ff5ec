"""StableLM: Llama with layer norms, a quarter of every head turned. arXiv:2402.17834"""

from dataclasses import dataclass

from ..kernels.attention.rope import NEOX
from ..loading.hparams import key
from .llama import Llama, LlamaHparams


@dataclass(frozen=True)
class StableLmHparams(LlamaHparams):
    """Its norms are layer norms."""

    eps: float = key("attention.layer_norm_epsilon")


class StableLm(Llama):
    """StableLM 3B and StableLM 2 1.6B; biases are used where the file has them."""

    name = "stablelm"
    hparams = StableLmHparams
    style = NEOX
    layer_norms = True
