"""Keys of families with experts, and with experts as DeepSeek has them."""

from .hparams import Hparams, key

SOFTMAX, SIGMOID = 1, 2  # of expert_gating_func


class ExpertsHparams(Hparams):
    n_expert: int = key("expert_count", minimum=1)
    n_expert_used: int = key("expert_used_count", minimum=1)


class OptionalExpertsHparams(Hparams):
    """n_expert 0: no experts."""

    n_expert: int = key("expert_count", 0)
    n_expert_used: int = key("expert_used_count", 0)


class RoutedHparams(OptionalExpertsHparams):
    """n_dense: number of first layers without experts. Every token uses a shared expert as wide as n_shared experts."""

    n_dense: int = key("leading_dense_block_count", 0, counts="first")
    n_ff_expert: int = key("expert_feed_forward_length", 0)
    n_shared: int = key("expert_shared_count", 0)
    weights_norm: bool = key("expert_weights_norm", True)
    weights_scale: float = key("expert_weights_scale", 1.0)
    gating: int = key("expert_gating_func", SOFTMAX)
    n_expert_group: int = key("expert_group_count", 1)
    n_expert_group_used: int = key("expert_group_used_count", 1)
