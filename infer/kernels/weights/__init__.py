"""How the rows of each weight type are read: one unpack rule per type, the same for all products.

Only this package of the core knows the block layouts (documented in quant/ggml/formats). A new type needs an entry in
INT_BLOCKS if its weights are small integers with scales, otherwise in FLOAT_BLOCKS.
"""

from hybrid.quant.ggml.types import NOT_WEIGHTS, TRAITS, GGMLType

from .base import FloatBlock, Groups, IntBlock, eight_groups, floats_of, one_block, signed, whole
from .grids import GRIDS
from .k_quants import SUPER
from .pairs import PAIRS, bias_of, numbers_of_pairs
from .plain import FLOATS, LOAD1, LOAD16
from .sixteen import by_qwords, has_sixteen, sixteen_groups
from .small import NVFP4, SMALL

__all__ = [
    "FLOAT_BLOCKS",
    "INT_BLOCKS",
    "LOAD1",
    "LOAD16",
    "PAIRS",
    "FloatBlock",
    "Groups",
    "IntBlock",
    "bias_of",
    "by_qwords",
    "eight_groups",
    "has_sixteen",
    "numbers_of_pairs",
    "one_block",
    "signed",
    "sixteen_groups",
    "whole",
]

INT_BLOCKS: dict[GGMLType, IntBlock] = SMALL | SUPER | GRIDS
FLOAT_BLOCKS: dict[GGMLType, FloatBlock] = (
    FLOATS | {GGMLType.NVFP4: NVFP4} | {kind: floats_of(block) for kind, block in INT_BLOCKS.items()}
)
assert FLOAT_BLOCKS.keys() == TRAITS.keys() - NOT_WEIGHTS, "every weight type runs"
