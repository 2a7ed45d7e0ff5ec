"""Keys of ERNIE 4.5. n_ff_expert, n_ff_shared: widths of an expert and of the shared ones together, 0: there are
none."""

from .experts import ExpertsHparams
from .hparams import key
from .llama import LlamaHparams


class Ernie45MoeHparams(ExpertsHparams, LlamaHparams):
    n_ff_expert: int = key("expert_feed_forward_length", minimum=1)
    n_ff_shared: int = key("expert_shared_feed_forward_length", 0)
