"""Keys of OpenELM: sizes per layer."""

from .hparams import key
from .rope import RopeHparams


class OpenElmHparams(RopeHparams):
    n_head: tuple[int, ...] = key("attention.head_count", per_layer=True, minimum=1)
    n_head_kv: tuple[int, ...] = key("attention.head_count_kv", per_layer=True, minimum=1)
    n_ff: tuple[int, ...] = key("feed_forward_length", per_layer=True, minimum=1)
    d_head: int = key("attention.key_length", minimum=1)
