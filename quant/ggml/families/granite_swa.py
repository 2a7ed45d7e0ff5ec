"""Keys of Granite with windows, on `local` layers. turned: layers with RoPE."""

from .granite import GraniteHparams
from .hparams import key


class GraniteSwaHparams(GraniteHparams):
    window: int = key("attention.sliding_window", 0)
    local: tuple[bool, ...] = key("attention.sliding_window_pattern", pattern=True)
    turned: tuple[bool, ...] = key("attention.rope_pattern", 0, pattern=True)
