"""Mixes by role: types chosen by what a matrix does, from measured divergences (docs/decisions.md).

    experts      routed experts: most of the weights, each read by few tokens; their down projections need more bits
    high         keys, values, outputs of recurrences and convolutions, down projections, also of shared experts
    early, low   the other matrices, in the first quarter of the layers and after it
    output       output.weight and token_embd.weight

Beside routed experts the other matrices have more bits than in models without: they are a small part of the file.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from .mixes import EMBEDDING, OUTPUT, ModelTraits, has_eight_bits
from .types import FileType, GGMLType

_HIGH = re.compile(
    r"\.(attn_(k|v|qkv|kv)(_\w+)?|ssm_(out|ba|alpha|beta)|ffn_down(_shexp)?|shortconv\.out_proj|nextn\.\w+"
    r"|time_mix_(value|output)|channel_mix_value)\.weight"
)
_EXPERTS = re.compile(r"\.ffn_(gate|up|gate_up|down)_exps\.")
_BLOCK = re.compile(r"blk\.(\d+)\.")
_T = GGMLType


@dataclass(frozen=True)
class RoleTypes:
    """The types of matrices that are not routed experts."""

    early: GGMLType
    low: GGMLType
    high: GGMLType
    output: GGMLType


@dataclass(frozen=True)
class RoleMix:
    """file_type: of the file, for other programs; alone, beside: without and with routed experts."""

    file_type: FileType
    alone: RoleTypes
    beside: RoleTypes
    experts: GGMLType
    experts_down: GGMLType


_FOUR = RoleTypes(_T.Q5_K, _T.IQ4_XS, _T.Q5_K, _T.Q6_K)
ROLE_MIXES = {
    "Q2_K_XL": RoleMix(FileType.Q2_K, RoleTypes(_T.Q3_K, _T.Q2_K, _T.Q3_K, _T.Q5_K), _FOUR, _T.Q2_K, _T.Q3_K),
    "Q3_K_XL": RoleMix(FileType.Q3_K_M, RoleTypes(_T.IQ4_XS, _T.Q3_K, _T.IQ4_XS, _T.Q5_K), _FOUR, _T.Q3_K, _T.IQ4_XS),
    "Q4_K_XL": RoleMix(
        FileType.Q4_K_M, _FOUR, RoleTypes(_T.Q6_K, _T.Q5_K, _T.Q6_K, _T.Q6_K), _T.IQ4_XS, _T.Q5_K
    ),
}  # fmt: skip


def role_types(mix: RoleMix, shapes: Mapping[str, tuple[int, ...]], model: ModelTraits) -> dict[str, GGMLType]:
    """The type of each of these matrices, before `fitting`."""
    types = mix.beside if any(_EXPERTS.search(name) for name in shapes) else mix.alone
    return {name: _type_of(name, mix, types, model) for name in shapes}


def _type_of(name: str, mix: RoleMix, types: RoleTypes, model: ModelTraits) -> GGMLType:
    if has_eight_bits(name, model):
        return _T.Q8_0
    if name in (OUTPUT, EMBEDDING):
        return types.output
    if _EXPERTS.search(name):
        return mix.experts_down if ".ffn_down" in name else mix.experts
    if _HIGH.search(name):
        return types.high
    block = _BLOCK.match(name)
    return types.early if block and int(block[1]) < model.n_layer // 4 else types.low
