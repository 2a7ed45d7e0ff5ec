"""The families that the core can run, by the name of their architecture in GGUF."""

from .base import Family
from .granitehybrid import GraniteHybrid
from .jamba import Jamba
from .llama import Llama
from .mamba import Mamba
from .mamba2 import Mamba2

FAMILIES: dict[str, Family] = {family.name: family for family in (GraniteHybrid(), Jamba(), Llama(), Mamba(), Mamba2())}

__all__ = ["FAMILIES", "Family"]
