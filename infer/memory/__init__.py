"""What a model remembers of its sequences."""

from .attention import AttentionSpec
from .hybrid import HybridMemory
from .recurrent import RecurrentSpec

__all__ = ["AttentionSpec", "HybridMemory", "RecurrentSpec"]
