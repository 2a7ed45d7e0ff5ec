"""Keys of LFM3. A layer without heads of keys is a convolution over d_conv tokens; `local`: layers whose tokens see the
last `window`."""

from .hparams import TransformerHparams, key
from .rope import RopeHparams


class Lfm3Hparams(RopeHparams, TransformerHparams):
    d_head: int = key("attention.key_length", minimum=1)
    d_conv: int = key("shortconv.l_cache", minimum=2)
    window: int = key("attention.sliding_window", 0)
    local: tuple[bool, ...] = key("attention.sliding_window_pattern", pattern=True)
    freq_base_local: float = key("rope.freq_base_swa", 10000.0, minimum=1)
