"""Keys of ERNIE 4.5. n_ff_expert: width of an expert; n_ff_shared: width of the shared experts together, 0: none."""

from .experts import ExpertsHparams
from .hparams import key
from .llama import LlamaHparams


class Ernie45MoeHparams(ExpertsHparams, LlamaHparams):
    n_ff_expert: int = key("expert_feed_forward_length", minimum=1)
    n_ff_shared: int = key("expert_shared_feed_forward_length", 0)
