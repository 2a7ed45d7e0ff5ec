"""Keys of Phi-MoE. jitter: of the sparse mixer. The key is ours; other programs' files always have the usual value."""

from .experts import ExpertsHparams
from .hparams import key
from .llama import LlamaHparams


class PhiMoeHparams(ExpertsHparams, LlamaHparams):
    jitter: float = key("hybrid.expert_router_jitter", 0.01)
