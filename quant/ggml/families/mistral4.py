"""Keys of Mistral Small 4. Queries at p are times 1 + temperature * log(1 + floor(p / period))."""

from .deepseek2 import DeepSeek2Hparams
from .hparams import key


class Mistral4Hparams(DeepSeek2Hparams):
    temperature: float = key("attention.temperature_scale", 0.0)
    period: int = key("attention.temperature_length", 8192, minimum=1)
