"""Keys of Hunyuan. n_ff is the width of an expert, n_ff_shared that of the shared one, 0: the same."""

from .experts import ExpertsHparams
from .hparams import key
from .llama import LlamaHparams


class HunyuanMoeHparams(ExpertsHparams, LlamaHparams):
    n_ff_shared: int = key("expert_shared_feed_forward_length", 0)
