"""What a family declares: its hyper-parameters and, layer by layer, what a block is made of."""

from collections.abc import Iterator
from typing import Any, ClassVar, Protocol

from ..hparams import Hparams
from ..layers import Layer
from ..weights import Weights

# A part of a block and the name of the norm in front of it: x += layer(norm(x)).
Part = tuple[str, Layer]


class Family(Protocol):
    """One architecture of GGUF. `name` is the value of general.architecture and the prefix of its keys."""

    name: ClassVar[str]
    hparams: ClassVar[type[Hparams]]

    @staticmethod
    def block(h: Any, i: int, w: Weights) -> Iterator[Part]:
        """The parts of block `i`, in order."""

    @staticmethod
    def eps(h: Any) -> float:
        """Epsilon of the RMS norms."""
