"""Keys of gpt-oss. window: tokens that a local layer sees; local: which layers are local. alpha, limit: of the experts'
gates; the keys are ours, llama.cpp takes the usual values."""

from .experts import ExpertsHparams
from .hparams import AttentionHparams, key
from .rope import RopeHparams


class GptOssHparams(ExpertsHparams, RopeHparams, AttentionHparams):
    d_head: int = key("attention.key_length", 0)
    window: int = key("attention.sliding_window", 0)
    local: tuple[bool, ...] = key("attention.sliding_window_pattern", 2, pattern=True)
    n_ff_expert: int = key("expert_feed_forward_length", minimum=1)
    alpha: float = key("hybrid.expert_swiglu_alpha", 1.702, minimum=1e-6)
    limit: float = key("hybrid.expert_swiglu_limit", 7.0, minimum=1e-6)
