"""What runs add to while an importance matrix is measured."""

from dataclasses import dataclass, field

from ..kernels.products.inputs import SquareSums
from ..program.builder import Program, Rows

Programs = dict[tuple, tuple[Program, Rows | None]]  # by part and capacity, with the rows that it makes


@dataclass
class Collection:
    """Sums of the squares of what weights were multiplied by, and the programs that add to them."""

    sums: SquareSums = field(default_factory=SquareSums)
    programs: Programs = field(default_factory=dict)
