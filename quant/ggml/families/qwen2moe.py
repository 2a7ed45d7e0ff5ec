"""Keys of Qwen2-MoE. n_ff_expert: width of an expert, by default n_ff / n_expert_used; n_ff_shared: width of the shared
expert, by default n_ff; weights_norm: the used experts' weights are made to add up to 1."""

from .experts import ExpertsHparams
from .hparams import key
from .llama import LlamaHparams


class Qwen2MoeHparams(ExpertsHparams, LlamaHparams):
    n_ff_expert: int = key("expert_feed_forward_length", 0)
    n_ff_shared: int = key("expert_shared_feed_forward_length", 0)
    weights_norm: bool = key("expert_weights_norm", False)
