"""The families that the core can run, by the name of their architecture in GGUF."""

from .base import Family
from .jamba import Jamba
from .llama import Llama
from .mamba import Mamba

FAMILIES: dict[str, Family] = {family.name: family for family in (Jamba(), Llama(), Mamba())}

__all__ = ["FAMILIES", "Family"]
