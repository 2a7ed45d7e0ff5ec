"""Keys of Mellum 2. `local` layers have a window, and RoPE of their own, which is not scaled, with another base (0: the
same)."""

from .hparams import key
from .qwen2 import Qwen3MoeHparams


class MellumHparams(Qwen3MoeHparams):
    window: int = key("attention.sliding_window", 0)
    local: tuple[bool, ...] = key("attention.sliding_window_pattern", 4, pattern=True)
    freq_base_local: float = key("rope.freq_base_swa", 0.0)
