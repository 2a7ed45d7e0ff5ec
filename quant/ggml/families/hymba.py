"""Keys of Hymba. Every layer has attention and Mamba-1 side by side; `local`: layers whose tokens see the last `window`
and the prefix. Layer i uses the keys and values of layer i - back[i]."""

from .hparams import TransformerHparams, key
from .mamba import Mamba1Hparams
from .rope import RopeHparams


class HymbaHparams(RopeHparams, TransformerHparams, Mamba1Hparams):
    d_head: int = key("attention.key_length", minimum=1)
    d_value: int = key("attention.value_length", minimum=1)
    window: int = key("attention.sliding_window", 0)
    local: tuple[bool, ...] = key("attention.sliding_window_pattern", 0, pattern=True)
    back: tuple[int, ...] = key("attention.kv_distance", per_layer=True)
    n_prefix: int = key("prefix_length", minimum=1)
