"""Keys of ZAYA1. `local` layers see `window` tokens, and have rotary positions of their own."""

from .hparams import TransformerHparams, key
from .rope import RopeHparams


class ZayaHparams(RopeHparams, TransformerHparams):
    d_head: int = key("attention.key_length", minimum=1)
    taps_channel: int = key("ssm.conv_kernel", minimum=1)
    taps_head: int = key("attention.conv_kernel", minimum=1)
    window: int = key("attention.sliding_window", 0)
    local: tuple[bool, ...] = key("attention.sliding_window_pattern", 1, pattern=True)
    freq_base: float = key("rope.freq_base", minimum=1)
    freq_base_local: float = key("rope.freq_base_swa", 0.0)  # 0: the same
    n_rot: int = key("rope.dimension_count", minimum=2)
    n_rot_local: int = key("rope.dimension_count_swa", 0)
    n_expert: int = key("expert_count", minimum=1)
    n_router: int = key("expert_router_length", minimum=1)
