"""Seed-OSS: Llama with biases on queries, keys and values. Of ByteDance-Seed."""

from ..kernels.attention.rope import NEOX
from .llama import Llama


class SeedOss(Llama):
    """Seed-OSS; biases are used if the file has them."""

    name = "seed_oss"
    style = NEOX
    norms = ("attn_norm.weight", "post_attention_norm.weight")
