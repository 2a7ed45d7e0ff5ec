"""The types that llama-quantize gives the matrices of a file in its mixes of K-quants (llama-quant.cpp, 2026-10).

    file type  most    attn_v                       attn_output  ffn_down                     output
    Q3_K_S     Q3_K    Q3_K                         Q3_K         Q3_K                         Q6_K
    Q3_K_M     Q3_K    Q5_K first two, Q4_K others  Q4_K         Q5_K first 1/16, Q4_K others Q6_K
    Q3_K_L     Q3_K    Q5_K                         Q5_K         Q5_K                         Q6_K
    Q4_K_S     Q4_K    Q5_K first four              Q4_K         Q5_K first 1/8               Q6_K
    Q4_K_M     Q4_K    Q6_K some                    Q4_K         Q6_K some                    Q6_K
    Q5_K_S     Q5_K    Q5_K                         Q5_K         Q5_K                         Q6_K
    Q5_K_M     Q5_K    Q6_K some                    Q5_K         Q6_K some                    Q6_K

"some": the first and the last eighth and every third between. `output` is output.weight, without one token_embd.weight.
Left out: its rules for exactly 8 experts (Mixtral), for Llama 70B and Falcon, and for importance matrices.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from .types import TRAITS, FileType, GGMLType

_BLOCK = re.compile(r"blk\.(\d+)\.")
_DOWN = re.compile(r"\.ffn_down(_exps|_shexp)?\.weight$")
OUTPUT, EMBEDDING = "output.weight", "token_embd.weight"

Rule = Callable[[int, int], GGMLType | None]  # (i, n) -> the type of number i of n, None for that of most


@dataclass(frozen=True)
class Mix:
    """The type of most matrices, and the rules for those that take another."""

    most: GGMLType
    attn_v: Rule
    ffn_down: Rule
    attn_output: GGMLType


def _first(kind: GGMLType, where: Callable[[int, int], bool], others: GGMLType | None = None) -> Rule:
    return lambda i, n: kind if where(i, n) else others


def _more(i: int, n: int) -> bool:
    return i < n // 8 or i >= 7 * n // 8 or (i - n // 8) % 3 == 2


def _all(kind: GGMLType) -> Rule:
    return lambda i, n: kind


_Q3, _Q4, _Q5, _Q6 = GGMLType.Q3_K, GGMLType.Q4_K, GGMLType.Q5_K, GGMLType.Q6_K
MIXES: dict[FileType, Mix] = {
    FileType.Q3_K_S: Mix(_Q3, _all(_Q3), _all(_Q3), _Q3),
    FileType.Q3_K_M: Mix(_Q3, _first(_Q5, lambda i, n: i < 2, _Q4), _first(_Q5, lambda i, n: i < n // 16, _Q4), _Q4),
    FileType.Q3_K_L: Mix(_Q3, _all(_Q5), _all(_Q5), _Q5),
    FileType.Q4_K_S: Mix(_Q4, _first(_Q5, lambda i, n: i < 4), _first(_Q5, lambda i, n: i < n // 8), _Q4),
    FileType.Q4_K_M: Mix(_Q4, _first(_Q6, _more), _first(_Q6, _more), _Q4),
    FileType.Q5_K_S: Mix(_Q5, _all(_Q5), _all(_Q5), _Q5),
    FileType.Q5_K_M: Mix(_Q5, _first(_Q6, _more), _first(_Q6, _more), _Q5),
}

# What takes the place of a type whose blocks do not divide a row.
_SMALLER: dict[GGMLType, GGMLType] = {
    GGMLType.Q2_K: GGMLType.Q4_0,
    GGMLType.Q3_K: GGMLType.Q4_0,
    GGMLType.Q4_K: GGMLType.Q5_0,
    GGMLType.Q5_K: GGMLType.Q5_1,
    GGMLType.Q6_K: GGMLType.Q8_0,
    GGMLType.IQ4_XS: GGMLType.IQ4_NL,
    GGMLType.IQ1_S: GGMLType.IQ4_NL,
    GGMLType.IQ1_M: GGMLType.IQ4_NL,
    GGMLType.IQ2_XXS: GGMLType.IQ4_NL,
    GGMLType.IQ2_XS: GGMLType.IQ4_NL,
    GGMLType.IQ2_S: GGMLType.IQ4_NL,
    GGMLType.IQ3_XXS: GGMLType.IQ4_NL,
    GGMLType.IQ3_S: GGMLType.IQ4_NL,
    GGMLType.TQ1_0: GGMLType.Q4_0,
    GGMLType.TQ2_0: GGMLType.Q4_0,
    GGMLType.Q2_0: GGMLType.Q4_0,
}


def fitting(kind: GGMLType, n: int) -> GGMLType:
    """`kind`, or what llama-quantize takes instead when rows of `n` weights are not whole blocks of it; at last F16."""
    if n % TRAITS[kind].block:
        kind = _SMALLER.get(kind, GGMLType.F16)
    return GGMLType.F16 if n % TRAITS[kind].block else kind


def mixed_types(file_type: FileType, names: Sequence[str], n_layer: int, n_expert: int = 0) -> dict[str, GGMLType]:
    """The type of each of these matrices, all that the model has and by layer, before `fitting`."""
    mix = MIXES[file_type]
    n_attn_v = sum(name.endswith(".attn_v.weight") for name in names)
    output = OUTPUT if OUTPUT in names else EMBEDDING
    i_attn_v = i_down = 0
    types: dict[str, GGMLType] = {}
    for name in names:
        kind: GGMLType | None = mix.most
        block = _BLOCK.match(name)
        if name == output:
            kind = GGMLType.Q6_K
        elif name.endswith(".attn_v.weight"):
            kind = mix.attn_v(i_attn_v, n_attn_v)
            i_attn_v += 1
        elif name.endswith(".attn_output.weight"):
            kind = mix.attn_output
        elif _DOWN.search(name) and block:
            kind = mix.ffn_down(int(block[1]) if n_expert > 1 else i_down, n_layer)
            i_down += 1
        types[name] = kind or mix.most
    return types
