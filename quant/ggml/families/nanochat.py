"""Keys of nanochat. logit_cap: logits become cap * tanh(x / cap), 0: unchanged."""

from .hparams import key
from .llama import LlamaHparams


class NanoChatHparams(LlamaHparams):
    logit_cap: float = key("final_logit_softcapping", 0.0)
