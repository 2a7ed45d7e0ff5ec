"""Keys of GLM-5. full: per layer, whether it chooses tokens itself."""

from .deepseek32 import DeepSeek32Hparams
from .hparams import key


class GlmDsaHparams(DeepSeek32Hparams):
    full: tuple[bool, ...] = key("attention.indexer.types", 0, pattern=True)
