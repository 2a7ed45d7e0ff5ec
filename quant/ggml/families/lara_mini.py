"""Keys of LaraMini. A layer without heads of keys has the delta rule: n_ssm_head heads of d_inner / n_ssm_head values,
which share n_group heads of keys. `local`: layers whose tokens see the last `window`; only they have positions."""

from .experts import ExpertsHparams
from .hparams import AttentionHparams, key
from .mamba2 import SsmHparams
from .rope import RopeHparams


class LaraMiniHparams(RopeHparams, AttentionHparams, ExpertsHparams, SsmHparams):
    d_head: int = key("attention.key_length", minimum=1)
    window: int = key("attention.sliding_window", 0)
    local: tuple[bool, ...] = key("attention.sliding_window_pattern", pattern=True)
    n_ff_expert: int = key("expert_feed_forward_length", minimum=1)
    n_ff_shared: int = key("expert_shared_feed_forward_length", minimum=1)
    weights_norm: bool = key("expert_weights_norm", True)
