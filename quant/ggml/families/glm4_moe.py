"""Keys of GLM-4.5."""

from .dots1 import Dots1Hparams
from .experts import SIGMOID
from .hparams import key


class Glm4MoeHparams(Dots1Hparams):
    gating: int = key("expert_gating_func", SIGMOID)
