"""What a model remembers of its sequences."""

from .attention import AttentionSpec
from .hybrid import HybridMemory, require_room
from .recurrent import RecurrentSpec

__all__ = ["AttentionSpec", "HybridMemory", "RecurrentSpec", "require_room"]
