"""Keys of AFMoE. `local`: layers whose tokens see the last `window` (0: no layer); positions are on `local` layers.
embedding_scale: factor of the embedding; 0, as in llama.cpp: the root of its length."""

import math

from .dots1 import Dots1Hparams
from .experts import SIGMOID
from .hparams import Scales, key


class AfmoeHparams(Dots1Hparams):
    window: int = key("attention.sliding_window", 0)
    local: tuple[bool, ...] = key("attention.sliding_window_pattern", 4, pattern=True)
    gating: int = key("expert_gating_func", SIGMOID)
    embedding_scale: float = key("embedding_scale", 0.0)

    @property
    def scales(self) -> Scales:
        return Scales(embedding=self.embedding_scale or math.sqrt(self.n_embd))
