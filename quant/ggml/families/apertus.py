"""Keys of Apertus. xIELU's parameters are per layer; alphas are stored before their softplus."""

from .hparams import key
from .llama import LlamaHparams

LOWEST = -1e30  # of numbers that may be negative


class ApertusHparams(LlamaHparams):
    alpha_n: tuple[float, ...] = key("xielu.alpha_n", per_layer=True, minimum=LOWEST)
    alpha_p: tuple[float, ...] = key("xielu.alpha_p", per_layer=True, minimum=LOWEST)
    beta: tuple[float, ...] = key("xielu.beta", per_layer=True, minimum=LOWEST)
    least: tuple[float, ...] = key("xielu.eps", per_layer=True, minimum=LOWEST)
