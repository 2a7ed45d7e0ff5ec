"""Keys of Opt.Gear. A layer without heads of keys has the mixer, with d_conv taps on n_kv heads of keys and values."""

from .gemma import Gemma3Hparams
from .hparams import key


class GearHparams(Gemma3Hparams):
    d_conv: int = key("shortconv.l_cache", minimum=2)
    n_kv: int = key("shortconv.head_count_kv", minimum=1)
