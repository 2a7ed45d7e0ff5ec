"""Keys of Qwen3-Next. n_ssm_head heads of d_inner / n_ssm_head values on n_group heads of keys; n_ff_expert 0: n_ff /
n_expert_used; n_ff_shared 0: n_ff."""

from .experts import OptionalExpertsHparams
from .hparams import AttentionHparams, key
from .mamba2 import SsmHparams
from .rope import RopeHparams


class Qwen3NextHparams(RopeHparams, AttentionHparams, OptionalExpertsHparams, SsmHparams):
    n_ff: int = key("feed_forward_length", 0)  # of a layer without experts
    d_head: int = key("attention.key_length", 0)
    n_rot: int = key("rope.dimension_count", 0)
    n_ff_expert: int = key("expert_feed_forward_length", 0)
    n_ff_shared: int = key("expert_shared_feed_forward_length", 0)
    weights_norm: bool = key("expert_weights_norm", True)
