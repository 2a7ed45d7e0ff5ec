"""StableLM: Llama with layer norms, RoPE on a quarter of every head. arXiv:2402.17834"""

from hybrid.quant.ggml.families.llama import LayerNormLlamaHparams

from ..kernels.attention.rope import NEOX
from .llama import Llama


class StableLm(Llama):
    """StableLM 3B and StableLM 2 1.6B; biases are used if the file has them."""

    name = "stablelm"
    hparams = LayerNormLlamaHparams
    style = NEOX
    layer_norms = True
