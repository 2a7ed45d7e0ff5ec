"""The sums that runs add to while an importance matrix is measured."""

from dataclasses import dataclass, field

from ..kernels.products.inputs import SquareSums
from ..program.builder import Program, Rows

Key = tuple[str, int] | tuple[str, int, bool, bool]  # part, capacity, profiled, whether tokens have adapters
Programs = dict[Key, tuple[Program, Rows | None]]  # with their result rows


@dataclass
class Collection:
    """Sums of the squares of the inputs of weights, and the programs that add to them."""

    sums: SquareSums = field(default_factory=SquareSums)
    programs: Programs = field(default_factory=dict)
