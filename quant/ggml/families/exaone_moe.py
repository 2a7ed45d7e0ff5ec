"""Keys of K-EXAONE. `local`: layers whose tokens see the last `window`; if there is a window, only they have
positions."""

from .dots1 import Dots1Hparams
from .hparams import key


class ExaoneMoeHparams(Dots1Hparams):
    window: int = key("attention.sliding_window", 0)
    local: tuple[bool, ...] = key("attention.sliding_window_pattern", 4, pattern=True)
