"""Keys of AliceAI. A layer without heads of keys has the delta rule; n_block: layers that share a bank."""

from .experts import SIGMOID, ExpertsHparams
from .hparams import AttentionHparams, key
from .rope import RopeHparams


class AliceAIHparams(RopeHparams, AttentionHparams, ExpertsHparams):
    d_head: int = key("attention.key_length", minimum=1)
    n_rot: int = key("rope.dimension_count", minimum=2)
    n_ff_expert: int = key("expert_feed_forward_length", minimum=1)
    n_ff_shared: int = key("expert_shared_feed_forward_length", minimum=1)
    gating: int = key("expert_gating_func", SIGMOID)
    weights_norm: bool = key("expert_weights_norm", True)
    d_conv: int = key("ssm.conv_kernel", minimum=2)
    d_kda: int = key("kda.head_dim", minimum=1)
    n_kda: int = key("ssm.group_count", minimum=1)
    n_block: int = key("attn_res.block_size", minimum=1)
