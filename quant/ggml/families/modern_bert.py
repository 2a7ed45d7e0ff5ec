"""Keys of ModernBERT."""

from .gpt2 import Gpt2Hparams
from .hparams import key
from .rope import RopeHparams


class ModernBertHparams(Gpt2Hparams, RopeHparams):
    """window: tokens that a local layer sees around a token, half of them on each side; 0: no layer is local. period:
    the first of every `period` layers sees all tokens. pooling, classifier_pooling: numbers as in BERT."""

    window: int = key("attention.sliding_window", 0)
    period: int = key("attention.sliding_window_pattern", 3, minimum=1)
    freq_base_local: float = key("rope.freq_base_swa", 10000.0, minimum=1)
    activation: str = key("hidden_activation", "gelu")
    pooling: int = key("pooling_type", 0)
    classifier_pooling: int = key("classifier.pooling_type", 1)
