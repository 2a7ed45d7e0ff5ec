"""Keys of Cohere 2. A token of a `local` layer sees `window` tokens, 0: all."""

from .command_r import CommandRHparams
from .hparams import key


class Cohere2Hparams(CommandRHparams):
    logit_scale: float = key("logit_scale")
    window: int = key("attention.sliding_window")
    local: tuple[bool, ...] = key("attention.sliding_window_pattern", 4, pattern=True)
