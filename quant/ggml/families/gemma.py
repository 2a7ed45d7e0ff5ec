"""Keys of Gemma 1, 2 and 3."""

import math

from .hparams import Hparams, Scales, TransformerHparams, key
from .llama import LlamaHparams
from .rope import RopeHparams


class RootScaledHparams(Hparams):
    @property
    def scales(self) -> Scales:
        return Scales(embedding=math.sqrt(self.n_embd))


class GemmaHparams(RootScaledHparams, LlamaHparams):
    """Keys of Gemma 1."""


class Gemma2Hparams(RootScaledHparams, RopeHparams, TransformerHparams):
    """window: tokens that a local layer sees; local: which layers are local; attention_cap, logit_cap: scores and
    logits become cap * tanh(x / cap), 0: unchanged; attention_scale 0: from the head size."""

    d_head: int = key("attention.key_length", 0)
    window: int = key("attention.sliding_window", 4096)
    local: tuple[bool, ...] = key("attention.sliding_window_pattern", 2, pattern=True)
    attention_cap: float = key("attn_logit_softcapping", 50.0)
    logit_cap: float = key("final_logit_softcapping", 30.0)
    attention_scale: float = key("attention.scale", 0.0)  # a key that only our converter writes
    freq_base_local: float = key("rope.freq_base_swa", 0.0)


class Gemma3Hparams(Gemma2Hparams):
    """Other defaults: no caps, and different bases of RoPE for local layers and for the rest."""

    window: int = key("attention.sliding_window", 0)
    local: tuple[bool, ...] = key("attention.sliding_window_pattern", 6, pattern=True)
    attention_cap: float = key("attn_logit_softcapping", 0.0)
    logit_cap: float = key("final_logit_softcapping", 0.0)
    freq_base: float = key("rope.freq_base", 1000000.0, minimum=1)
    freq_base_local: float = key("rope.freq_base_swa", 10000.0)


class EmbeddingGemmaHparams(Gemma3Hparams):
    """A window counts tokens on both sides together. pooling: numbers as in BERT."""

    pooling: int = key("pooling_type", 0)
