"""Keys of GPT-2. Every head has its own keys."""

from .hparams import Hparams, key


class Gpt2Hparams(Hparams):
    eps: float = key("attention.layer_norm_epsilon")
    n_head: int = key("attention.head_count", minimum=1)
    n_ff: int = key("feed_forward_length", minimum=1)
