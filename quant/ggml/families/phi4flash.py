"""Keys of Phi-4-mini-flash. A layer without heads of keys is Mamba-1; `local`: layers whose tokens see the last
`window`. The last n_shared layers keep nothing: without heads of keys, they gate the last scan's output."""

from .hparams import TransformerHparams, key
from .mamba import Mamba1Hparams


class Phi4FlashHparams(TransformerHparams, Mamba1Hparams):
    eps: float = key("attention.layer_norm_epsilon")
    sub_eps: float = key("attention.layer_norm_rms_epsilon")  # of the norm after a difference
    window: int = key("attention.sliding_window", 0)
    local: tuple[bool, ...] = key("attention.sliding_window_pattern", pattern=True)
    n_shared: int = key("attention.shared_kv_layers", counts="last")
