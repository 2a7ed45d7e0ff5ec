"""What runs add to while an importance matrix is measured."""

from dataclasses import dataclass, field

from ..kernels.products.inputs import SquareSums
from ..program.builder import Program, Rows

Key = tuple[str, int] | tuple[str, int, bool]  # part, capacity, whether it takes the time of every operation
Programs = dict[Key, tuple[Program, Rows | None]]  # with the rows that they make


@dataclass
class Collection:
    """Sums of the squares of what weights were multiplied by, and the programs that add to them."""

    sums: SquareSums = field(default_factory=SquareSums)
    programs: Programs = field(default_factory=dict)
