"""Keys of QRWKV6. n_kv: heads of keys that the others share, 0: each has its own."""

from .hparams import key
from .rwkv import Ranks6


class Rwkv6Qwen2Hparams(Ranks6):
    n_kv: int = key("attention.head_count_kv", 0)
