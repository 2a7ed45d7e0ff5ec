"""Keys of Ministral 3. temperature: queries are times 1 + temperature * log(1 + number of whole original contexts
before them)."""

from .hparams import key
from .llama import LlamaHparams


class Mistral3Hparams(LlamaHparams):
    temperature: float = key("attention.temperature_scale", 0.0)
