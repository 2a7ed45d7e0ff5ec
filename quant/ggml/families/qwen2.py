"""Keys of Qwen2 and Qwen3. n_deepstack: layers to whose results features of pictures are added. n_ff_expert: width of
an expert; weights_norm: the used experts' weights are made to add up to 1."""

from .experts import ExpertsHparams
from .hparams import key
from .llama import LlamaHparams


class Qwen3VLHparams(LlamaHparams):
    n_deepstack: int = key("n_deepstack_layers", 0)


class Qwen3MoeHparams(ExpertsHparams, LlamaHparams):
    n_ff_expert: int = key("expert_feed_forward_length", minimum=1)
    weights_norm: bool = key("expert_weights_norm", True)
