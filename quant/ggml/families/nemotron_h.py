"""Keys of Nemotron-H. A layer without heads of keys and without feed-forward width is Mamba-2, one with both guesses
tokens ahead."""

from .hparams import AttentionHparams, key
from .mamba2 import Mamba2Hparams


class NemotronHHparams(AttentionHparams, Mamba2Hparams):
    n_ff: tuple[int, ...] = key("feed_forward_length", per_layer=True)  # 0 marks a layer without feed-forward part
    d_head: int = key("attention.key_length", 0)
    n_expert: int = key("expert_count", 0)
    n_expert_used: tuple[int, ...] = key("expert_used_count", 0, per_layer=True)
    n_ff_expert: tuple[int, ...] = key("expert_feed_forward_length", 0, per_layer=True)
    n_ff_shared: int = key("expert_shared_feed_forward_length", 0)
    weights_norm: bool = key("expert_weights_norm", False)
    weights_scale: float = key("expert_weights_scale", 1.0)
    n_expert_group: int = key("expert_group_count", 1)
    n_expert_group_used: int = key("expert_group_used_count", 1)
    n_latent: int = key("moe_latent_size", 0)
