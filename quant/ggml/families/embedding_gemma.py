"""Keys of EmbeddingGemma."""

from .gemma import Gemma3Hparams
from .hparams import key


class EmbeddingGemmaHparams(Gemma3Hparams):
    """A window counts tokens on both sides together. pooling: numbers as in BERT."""

    pooling: int = key("pooling_type", 0)
