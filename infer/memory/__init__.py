"""A model's memory of its sequences."""

from .attention import AttentionSpec
from .cache import PromptCache
from .hybrid import HybridMemory, Move, plan_memory
from .recurrent import RecurrentSpec
from .rotation import Rotation
from .rows import RowsSpec

__all__ = [
    "AttentionSpec",
    "HybridMemory",
    "Move",
    "PromptCache",
    "RecurrentSpec",
    "Rotation",
    "RowsSpec",
    "plan_memory",
]
