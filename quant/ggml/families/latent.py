"""Keys of families with latent attention and DeepSeek's experts. n_rot values of a key are for all heads."""

from .experts import RoutedHparams
from .hparams import AttentionHparams, key


class LatentHparams(AttentionHparams, RoutedHparams):
    n_ff: int = key("feed_forward_length")
    rank: int = key("attention.kv_lora_rank", minimum=1)
    q_rank: int = key("attention.q_lora_rank", 0)
    d_key: int = key("attention.key_length_mla", minimum=1)
    d_value: int = key("attention.value_length_mla", minimum=1)
    n_rot: int = key("rope.dimension_count")
    latent_eps: float = key("hybrid.attention.latent_norm_rms_epsilon", 0.0)  # 0: eps
