"""Keys of Hunyuan. n_ff: width of an expert; n_ff_shared: width of the shared expert, 0: n_ff."""

from .experts import ExpertsHparams
from .hparams import key
from .llama import LlamaHparams


class HunyuanMoeHparams(ExpertsHparams, LlamaHparams):
    n_ff_shared: int = key("expert_shared_feed_forward_length", 0)
