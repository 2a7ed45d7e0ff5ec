"""The types that llama-quantize gives the matrices of a file (llama-quant.cpp, 2026-10), as data: `RECIPES`.

A file type names one type for most matrices, and rules for attention values (also fused attn_qkv), attention outputs
and down projections; two also for queries and keys, one for gate and up projections. output.weight, or without one
token_embd.weight, is Q6_K (Q5_K in files of IQ1, IQ2 and IQ3_XXS), but Q8_0 where rows are not whole blocks of the most
common type and in files of Q8_0.

Left out: Llama 70B and Falcon, which have special rules.
"""

import re
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum

from .types import TRAITS, FileType, GGMLType

_BLOCK = re.compile(r"blk\.(\d+)\.")
OUTPUT, EMBEDDING = "output.weight", "token_embd.weight"
_EIGHT_BITS_OF = {"glm5-next": ("attn_q_a", "attn_q_b")}  # matrices of architectures that have Q8_0 in every recipe
_EMBEDDINGS = (EMBEDDING, "per_layer_token_embd.weight")


class MatrixRole(StrEnum):
    """The role of a matrix in the rules, by a part of its name; the first match counts."""

    ATTN_V = "attn_v"
    ATTN_K = "attn_k"
    ATTN_Q = "attn_q"
    ATTN_OUTPUT = "attn_output"
    FFN_UP = "ffn_up"
    FFN_GATE = "ffn_gate"
    FFN_DOWN = "ffn_down"
    OTHER = "other"


_PARTS = (
    ("attn_qkv.weight", MatrixRole.ATTN_V),
    ("attn_kv_b.weight", MatrixRole.ATTN_V),
    ("attn_v.weight", MatrixRole.ATTN_V),
    ("attn_k.weight", MatrixRole.ATTN_K),
    ("attn_q.weight", MatrixRole.ATTN_Q),
    ("attn_output.weight", MatrixRole.ATTN_OUTPUT),
    ("ffn_up", MatrixRole.FFN_UP),
    ("ffn_gate", MatrixRole.FFN_GATE),
    ("ffn_down", MatrixRole.FFN_DOWN),
)


@dataclass(frozen=True)
class ModelTraits:
    """Properties of a model that the rules use. A trap for hybrids: n_gqa is layer 0's, and 0 if that layer has no
    attention."""

    n_layer: int
    n_expert: int = 0
    n_gqa: int = 0
    importance: bool = False
    arch: str = ""


@dataclass(frozen=True)
class Ordinal:
    """Number i of n tensors of a kind."""

    i: int
    n: int
    model: ModelTraits


Rule = Callable[[Ordinal], GGMLType | None]  # None: the type of most


def none(at: Ordinal) -> None:
    return None


@dataclass(frozen=True)
class Recipe:
    """The type of most matrices, and the rules for the others."""

    most: GGMLType
    attn_v: Rule = none
    attn_output: Rule = none
    ffn_down: Rule = none
    embedding: GGMLType | None = None  # if the file has output.weight
    attn_qk: GGMLType | None = None
    ffn_up: Rule = none  # and gate
    output: GGMLType = GGMLType.Q6_K


def middle(kind: GGMLType) -> Rule:
    """Everywhere except in the first and the last eighth."""
    return lambda at: kind if at.n // 8 <= at.i < 7 * at.n // 8 else None


def every(kind: GGMLType) -> Rule:
    return lambda at: kind


def first(kind: GGMLType, part: int, others: GGMLType | None = None) -> Rule:
    """In the first 1 / part of all layers."""
    return lambda at: kind if at.i < at.n // part else others


def foremost(kind: GGMLType, count: int, others: GGMLType | None = None) -> Rule:
    return lambda at: kind if at.i < count else others


def some(kind: GGMLType) -> Rule:
    """In the first and the last eighth and every third between."""
    return lambda at: kind if at.i < at.n // 8 or at.i >= 7 * at.n // 8 or (at.i - at.n // 8) % 3 == 2 else None


def shared(kind: GGMLType, others: GGMLType | None = None) -> Rule:
    """If four or more query heads share a KV head."""
    return lambda at: kind if at.model.n_gqa >= 4 else others


def some_shared(kind: GGMLType, others: GGMLType) -> Rule:
    """As `some`, if four or more query heads share a KV head, or there are four or more experts."""
    return lambda at: kind if at.model.n_gqa >= 4 or at.model.n_expert >= 4 else others


def with_importance(rule: Rule) -> Rule:
    return lambda at: rule(at) if at.model.importance else None


def either(with_it: Rule, without: Rule) -> Rule:
    """One type with an importance matrix, another without."""
    return lambda at: (with_it if at.model.importance else without)(at)


def more_of_eight(kind: GGMLType) -> Rule:
    """In the first eighth, and with eight experts in `some`."""
    return lambda at: (some(kind) if at.model.n_expert == 8 else first(kind, 8))(at)


def without_importance(rule: Rule) -> Rule:
    return lambda at: None if at.model.importance else rule(at)


_Q2, _Q3, _Q4, _Q5, _Q6, _Q8 = (GGMLType[f"Q{n}"] for n in ("2_K", "3_K", "4_K", "5_K", "6_K", "8_0"))
_T = GGMLType
_I3 = GGMLType.IQ3_S
RECIPES: dict[FileType, Recipe] = {
    #                 most      attention values                    attention outputs         down projections
    FileType.Q1_0:   Recipe(_T.Q1_0),
    FileType.Q2_0:   Recipe(_T.Q2_0, embedding=_Q4),
    FileType.Q4_0:   Recipe(_T.Q4_0,                                 ffn_down=with_importance(first(_T.Q4_1, 8))),
    FileType.Q4_1:   Recipe(_T.Q4_1),
    FileType.Q5_0:   Recipe(_T.Q5_0,                                 ffn_down=with_importance(first(_T.Q5_1, 8))),
    FileType.Q5_1:   Recipe(_T.Q5_1),
    FileType.Q8_0:   Recipe(_Q8),
    FileType.Q2_K:   Recipe(_Q2, attn_v=shared(_Q4, _Q3),      attn_output=every(_Q3), ffn_down=every(_Q3)),
    FileType.Q2_K_S: Recipe(_Q2, attn_v=shared(_Q4),                                   ffn_down=first(_Q4, 8)),
    FileType.Q3_K_S: Recipe(_Q3),
    FileType.Q3_K_M: Recipe(_Q3, attn_v=foremost(_Q5, 2, _Q4), attn_output=every(_Q4), ffn_down=first(_Q5, 16, _Q4)),
    FileType.Q3_K_L: Recipe(_Q3, attn_v=every(_Q5),            attn_output=every(_Q5), ffn_down=every(_Q5)),
    FileType.Q4_K_S: Recipe(_Q4, attn_v=foremost(_Q5, 4),                              ffn_down=first(_Q5, 8)),
    FileType.Q4_K_M: Recipe(_Q4, attn_v=some(_Q6),                                     ffn_down=some(_Q6)),
    FileType.Q5_K_S: Recipe(_Q5),
    FileType.Q5_K_M: Recipe(_Q5, attn_v=some(_Q6),                                     ffn_down=some(_Q6)),
    FileType.Q6_K:   Recipe(_Q6),
    FileType.IQ4_NL: Recipe(_T.IQ4_NL, attn_v=shared(_Q5),           ffn_down=without_importance(first(_Q5, 8))),
    FileType.IQ4_XS: Recipe(_T.IQ4_XS, attn_v=shared(_Q5),           ffn_down=without_importance(first(_Q5, 8))),
    FileType.IQ3_M:  Recipe(_I3, attn_v=every(_Q4),            attn_output=every(_Q4), ffn_down=more_of_eight(_Q4)),
    FileType.IQ3_S:  Recipe(_I3, attn_v=shared(_Q4)),
    FileType.IQ3_XS: Recipe(_I3, attn_v=shared(_Q4), attn_qk=_T.IQ3_XXS, ffn_up=middle(_T.IQ3_XXS)),
    FileType.IQ3_XXS: Recipe(
        _T.IQ3_XXS, either(shared(_Q4, _T.IQ3_XXS), shared(_Q4, _I3)), every(_I3),
        without_importance(first(_Q4, 8, _Q3)), embedding=_I3, attn_qk=_T.IQ2_S, output=_Q5,
    ),
    FileType.IQ2_M:  Recipe(_T.IQ2_S,   some_shared(_Q4, _I3),  every(_I3),        first(_I3, 8), _I3, output=_Q5),
    FileType.IQ2_S:  Recipe(_T.IQ2_XS,  some_shared(_Q4, _I3),  every(_I3),        first(_I3, 8), _I3, output=_Q5),
    FileType.IQ2_XS: Recipe(_T.IQ2_XS,  some_shared(_Q4, _Q2),  none,              first(_Q2, 8), _Q2, output=_Q5),
    FileType.IQ2_XXS: Recipe(_T.IQ2_XXS, some_shared(_Q4, _Q2), none,              first(_Q2, 8), _Q2, output=_Q5),
    FileType.IQ1_M:  Recipe(_T.IQ1_M,   some_shared(_Q4, _Q2),  every(_T.IQ2_XXS), first(_Q2, 8), _Q2, output=_Q5),
    FileType.IQ1_S:  Recipe(_T.IQ1_S,   some_shared(_Q4, _Q2),  every(_T.IQ2_XXS), first(_Q2, 8), _Q2, output=_Q5),
    FileType.TQ1_0:  Recipe(_T.TQ1_0, embedding=_Q4),
    FileType.TQ2_0:  Recipe(_T.TQ2_0, embedding=_Q4),
    FileType.PQ2_0:  Recipe(_T.PQ2_0, embedding=_T.PQ2_0, output=_T.PQ2_0),
    FileType.PTQ1_0: Recipe(_T.PTQ1_0, embedding=_T.PTQ1_0, output=_T.PTQ1_0),
    FileType.MXFP4_MOE: Recipe(_T.MXFP4),  # for experts, and Q8_0 for all else
}  # fmt: skip
# Recipes of several types that are not named after one of them.
MIXES = {kind: recipe for kind, recipe in RECIPES.items() if "_K_" in kind.name}
# Written with an importance matrix only; in files of Q2_K_S this is also true of Q2_K.
NEED_IMPORTANCE = {_T.IQ1_S, _T.IQ1_M, _T.IQ2_XXS, _T.IQ2_XS, _T.IQ2_S, _T.IQ3_XXS}
# Files of these treat eight experts, and number down projections, in their own way.
_SMALLEST = {FileType.IQ1_S, FileType.IQ1_M, FileType.IQ2_XXS, FileType.IQ2_XS, FileType.IQ2_S, FileType.IQ2_M}
# With exactly 8 experts (Mixtral) their attention outputs are Q5_K, where other models take the rule of the recipe.
_OUTPUTS_OF_EIGHT = {
    FileType.Q2_K, FileType.Q3_K_S, FileType.Q3_K_M, FileType.Q4_K_S, FileType.Q4_K_M, FileType.IQ4_NL, FileType.IQ4_XS,
    FileType.IQ3_XXS, FileType.IQ3_XS, FileType.IQ3_S, FileType.IQ3_M, *_SMALLEST,
}  # fmt: skip

# Substitutes for types whose blocks do not divide a row.
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
    GGMLType.PQ2_0: GGMLType.Q4_0,
    GGMLType.PTQ1_0: GGMLType.Q4_0,
}


def fitting(kind: GGMLType, n: int) -> GGMLType:
    """`kind`, or llama-quantize's substitute if rows of `n` weights are not whole blocks of it; in the end F16."""
    if n % TRAITS[kind].block:
        kind = _SMALLER.get(kind, GGMLType.F16)
    return GGMLType.F16 if n % TRAITS[kind].block else kind


def has_eight_bits(name: str, model: ModelTraits) -> bool:
    """Whether a matrix is Q8_0 in every recipe."""
    return any(word in name for word in _EIGHT_BITS_OF.get(model.arch, ()))


def part_of(name: str) -> MatrixRole:
    return next((part for text, part in _PARTS if text in name), MatrixRole.OTHER)


def mixed_types(
    file_type: FileType, shapes: Mapping[str, tuple[int, ...]], model: ModelTraits, n_attn_v: int | None = None
) -> dict[str, GGMLType]:
    """The type of each of these matrices, by layer and name, before `fitting`. Shapes in numpy order.

    n_attn_v: number of attention values in the model, if some are missing from the matrices because their type was
    chosen.
    """
    recipe = RECIPES[file_type]
    parts = {name: part_of(name) for name in shapes}
    n_attn_v = sum(part is MatrixRole.ATTN_V for part in parts.values()) if n_attn_v is None else n_attn_v
    output = OUTPUT if OUTPUT in shapes else EMBEDDING
    seen: Counter[MatrixRole] = Counter()
    types: dict[str, GGMLType] = {}
    of_eight = model.n_expert == 8
    for name, part in parts.items():
        kind: GGMLType | None = None
        if has_eight_bits(name, model):
            kind = GGMLType.Q8_0
        elif name == output:
            kind = _output_type(file_type, recipe, shapes[name][-1])
        elif file_type is FileType.MXFP4_MOE:
            kind = GGMLType.MXFP4 if len(shapes[name]) > 2 and shapes[name][0] > 1 else GGMLType.Q8_0
        elif name in _EMBEDDINGS:
            kind = recipe.embedding
        elif part is MatrixRole.ATTN_V:
            kind = recipe.attn_v(Ordinal(seen[part], n_attn_v, model))
            kind = GGMLType.Q8_0 if of_eight and file_type not in _SMALLEST else kind
        elif part is MatrixRole.ATTN_K and of_eight:
            kind = GGMLType.Q4_K if file_type in _SMALLEST else GGMLType.Q8_0
        elif part in (MatrixRole.ATTN_Q, MatrixRole.ATTN_K):
            kind = recipe.attn_qk
        elif part is MatrixRole.ATTN_OUTPUT and of_eight:
            kind = GGMLType.Q5_K if file_type in _OUTPUTS_OF_EIGHT else None
        elif part is MatrixRole.ATTN_OUTPUT:
            kind = recipe.attn_output(Ordinal(0, 1, model))
        elif part in (MatrixRole.FFN_DOWN, MatrixRole.FFN_UP, MatrixRole.FFN_GATE):
            # where only some layers have one, the number of the layer counts in models of experts alone
            block = _BLOCK.match(name)
            by_layer = block and model.n_expert > 1 and file_type not in _SMALLEST
            rule = recipe.ffn_down if part is MatrixRole.FFN_DOWN else recipe.ffn_up
            kind = rule(Ordinal(int(block[1]) if block and by_layer else seen[part], model.n_layer, model))
        seen[part] += 1
        types[name] = kind or recipe.most
    return types


def _output_type(file_type: FileType, recipe: Recipe, n: int) -> GGMLType:
    if file_type is FileType.MXFP4_MOE or recipe.most is GGMLType.Q8_0 or n % TRAITS[recipe.most].block:
        return GGMLType.Q8_0
    return recipe.output
