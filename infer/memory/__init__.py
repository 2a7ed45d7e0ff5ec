"""What a model remembers of its sequences."""

from .attention import AttentionSpec
from .cache import PromptCache
from .hybrid import HybridMemory, Move, plan_memory
from .recurrent import RecurrentSpec
from .rotation import Rotation

__all__ = ["AttentionSpec", "HybridMemory", "Move", "PromptCache", "RecurrentSpec", "Rotation", "plan_memory"]
