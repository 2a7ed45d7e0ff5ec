"""Keys of Inkling 2 with loops. Layers first .. end - 1 are passed n_pass times; n_layer counts every pass, and so do
keys with a value per layer."""

from .hparams import key
from .inkling2 import Inkling2Hparams


class Inkling2LoopHparams(Inkling2Hparams):
    first: int = key("loop.first", minimum=1)
    end: int = key("loop.end", minimum=1)
    n_pass: int = key("loop.passes", minimum=1)
