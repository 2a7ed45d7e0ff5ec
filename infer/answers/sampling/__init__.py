"""From logits to a token, by llama.cpp's samplers."""

from .params import SAMPLERS, SamplingParams
from .sampler import Sampler

__all__ = ["SAMPLERS", "Sampler", "SamplingParams"]
