"""What a layer is to the graph: it loads its tensors once and adds its ops to every program."""

from typing import Protocol

from ..memory import AttentionSpec, HybridMemory, RecurrentSpec
from ..program import Builder, Rows
from ..weights import Weights

MemorySpec = AttentionSpec | RecurrentSpec


class Layer(Protocol):
    """A mixer or a feed-forward part of a block: rows in (normalized), rows out (to be added to the residual)."""

    letter: str  # how it is drawn in the layer pattern: A, M, E, or F for a dense feed-forward

    def load(self, w: Weights) -> None:
        """Ask for the tensors; raises FormatError when one is missing or has another shape."""

    def memory(self) -> MemorySpec | None:
        """What it keeps per sequence."""

    def build(self, b: Builder, x: Rows, memory: HybridMemory) -> Rows: ...
