"""What a family declares: its hyper-parameters and, layer by layer, what a block is made of."""

from collections.abc import Iterator
from typing import Any, Protocol

from ..layers import Layer
from ..weights import Weights

# A part of a block and the name of the norm in front of it: x += layer(norm(x)).
Part = tuple[str, Layer]


class Family(Protocol):
    """One architecture of GGUF. `name` is the value of general.architecture and the prefix of its keys."""

    name: str
    hparams: type[Any]

    def block(self, h: Any, i: int, w: Weights) -> Iterator[Part]:
        """The parts of block `i`, in order."""
        ...

    def eps(self, h: Any) -> float:
        """Epsilon of the RMS norms."""
        ...
