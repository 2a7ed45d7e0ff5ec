"""The type of each tensor in a quantized file: llama-quantize's rules (ggml/mixes.py) and the user's exceptions.

Order of decision: a tensor that is not a matrix to multiply with keeps its type; then --token-embedding-type and
--output-tensor-type; the first matching --tensor-type; the rule for small matrices of recurrent layers; the recipe of
the file type (or with `pure` its most common type); and llama-quantize's fallback type if rows are not whole blocks.

ssm_x and ssm_dt weights make the step size, B and C of every token; ssm_f_a and ssm_f_b the decay of Kimi's delta rule.
By default they stay F32: they are small, and the recurrence accumulates their errors. `SsmType.LIKE_LLAMA` treats them
as llama-quantize does, like any weight. An ssm_f_a without ssm_f_b is not small.
"""

import re
from collections.abc import Container, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Protocol

from .ggml import formats
from .ggml.errors import Remedy, UsageError, shown
from .ggml.mixes import EMBEDDING, OUTPUT, RECIPES, MatrixRole, ModelTraits, fitting, mixed_types, part_of
from .ggml.role_mixes import ROLE_MIXES, role_types
from .ggml.types import FILE_TYPE_WEIGHT, TRAITS, FileType, GGMLType

# Parts of names; such tensors keep the type they have in the source.
_LEFT_ALONE = (
    "_norm.weight",
    "ffn_gate_inp.weight",
    "ffn_gate_tid2eid.weight",
    "ffn_router_",
    "ssm_conv1d",
    "shortconv.conv.weight",
    "attn_rel_b.weight",
    "altup",
    "laurel",
    "per_layer_model_proj",
    "indexer.k_proj.weight",
    "indexer.q_proj.weight",
    "position_embd",
    "prefix_embd",
    "token_types.weight",
    "patch_embd",
    "patch_merger",
    ".rel_pos",
    "sam.pos_embd",
    "sam.neck.",
    "sam.net_",
    "a.rvq.codebook",
    "mm.a.code_embd",
)
# Likewise, of files of these architectures.
_LEFT_ALONE_OF = {
    "glm5-next": (
        "hc_", "indexer.attn_q_b", "indexer.attn_k", "indexer.proj", "indexer_compressor_", "ssm_f_a.weight",
        "ssm_f_b.weight", "ssm_g_a.weight", "ssm_g_b.weight", "ssm_beta.weight", "attn_kv_a_mqa.weight",
        "attn_k_b.weight", "attn_v_b.weight",
    ),
    "clip": ("mm.input_projection",),  # which llama.cpp turns over in Gemma 3; llama-quantize does not leave it alone
    "deepseek4": ("hc_", "_compressor_ape"),  # which llama-quantize does not leave alone
    "rwkv7a": ("deep_embd_down", "deep_embd_up", "dea_k_down", "dea_k_up", "dea_v_down", "dea_v_up"),
}  # fmt: skip
_TIME_MIX = re.compile(r"time_mix_(first|w0|w1|w2|v0|v1|v2|a0|a1|a2|g1|g2|decay_w1|decay_w2|lerp_fused)\.weight")
_SSM = re.compile(r"\.ssm_(x|dt|f_b)\.weight$")
_FIRST, _SECOND = ".ssm_f_a.weight", ".ssm_f_b.weight"
_FLOATS = (FileType.F32, FileType.F16, FileType.BF16)
# What `quantize` writes: file types whose rules are in the table and whose formats have encoders.
TARGETS = (*_FLOATS, *RECIPES)
# Types of the matrices of a vision tower.
TOWER_TARGETS = (FileType.F16, FileType.Q8_0)
# Shorter names that llama-quantize also takes.
ALIASES = {"Q3_K": FileType.Q3_K_M, "Q4_K": FileType.Q4_K_M, "Q5_K": FileType.Q5_K_M, "MXFP4": FileType.MXFP4_MOE}
TERNARY = {GGMLType.PQ2_0, GGMLType.PTQ1_0, GGMLType.TQ1_0, GGMLType.TQ2_0}
COPY = "COPY"  # a target: every tensor keeps its type, unless an option names another
NAMES = (*(kind.name for kind in TARGETS), *ROLE_MIXES, COPY)  # of targets
WRITABLE = {*ALIASES, *NAMES}


class SsmType(StrEnum):
    """The type of ssm_x, ssm_dt, ssm_f_a and ssm_f_b weights."""

    F32 = "f32"
    F16 = "f16"
    Q8_0 = "q8_0"
    LIKE_LLAMA = "like-llama"


class Reason(StrEnum):
    """Why a tensor does not have the requested type."""

    ASKED = ""
    LEFT_ALONE = "not a matrix to multiply by"
    SSM = "SSM parameter"
    OUTPUT = "output matrix"
    RECIPE = "recipe"
    CHOSEN = "chosen"
    SHAPE = "row is not whole blocks"
    NOT_TERNARY = "not ternary"


@dataclass(frozen=True)
class Decision:
    """The type of a tensor, and why it is not the requested one. unfit: the type that its rows do not fit, with
    Reason.SHAPE only."""

    type: GGMLType
    reason: Reason
    unfit: GGMLType | None = None


@dataclass(frozen=True)
class Options:
    """The user's exceptions.

    `tensor_types`: (regular expression, type), searched in names; the first match counts.
    `by_name`: types that were chosen for single matrices, by full name; they come last.
    `copy`: all other tensors keep their types. `mix`: a name in ROLE_MIXES, in place of the file type's recipe.
    """

    ssm_type: SsmType = SsmType.F32
    pure: bool = False
    tensor_types: tuple[tuple[str, GGMLType], ...] = ()
    output_type: GGMLType | None = None
    embedding_type: GGMLType | None = None
    leave_output: bool = False
    by_name: Mapping[str, GGMLType] = field(default_factory=dict)
    copy: bool = False
    mix: str = ""


class Tensor(Protocol):
    """The properties of a tensor that decide its type. `shape` in numpy order; `type`: in the source."""

    @property
    def name(self) -> str: ...
    @property
    def shape(self) -> tuple[int, ...]: ...
    @property
    def type(self) -> GGMLType: ...


def is_quantized(kind: GGMLType) -> bool:
    return TRAITS[kind].block > 1


def model_of(metadata: Mapping[str, Any], *, importance: bool = False) -> ModelTraits:
    """The properties of a model that recipes ask for, from GGUF metadata."""
    arch = metadata.get("general.architecture", "")

    def of_layer_0(key: str, default: int) -> int:
        value = metadata.get(f"{arch}.{key}", default)
        value = value[0] if hasattr(value, "__len__") and not isinstance(value, str) and len(value) else value
        return int(value) if isinstance(value, int) or hasattr(value, "dtype") else default

    heads = of_layer_0("attention.head_count", 0)
    shared = of_layer_0("attention.head_count_kv", heads)
    return ModelTraits(
        n_layer=of_layer_0("block_count", 0),
        n_expert=of_layer_0("expert_count", 0),
        n_gqa=heads // shared if shared > 0 else 0,
        importance=importance,
        arch=str(arch),
    )


def keeps_ternary(source: GGMLType, target: GGMLType) -> bool:
    """Whether ternary weights of one type are kept exactly in the other."""
    return source in TERNARY and target in (GGMLType.PQ2_0, GGMLType.PTQ1_0)


def type_named(name: str, option: str) -> GGMLType:
    """The writable type of this name. UsageError lists all."""
    kind = GGMLType.__members__.get(name.strip().upper())
    if kind is None or not formats.can_encode(kind):
        names = ", ".join(k.name for k in GGMLType if formats.can_encode(k))
        raise UsageError(f"{option}: {shown(name)} is not a type that can be written. Choose one of {names}.")
    return kind


def decide(
    tensors: Mapping[str, Tensor], target: FileType, model: ModelTraits, options: Options | None = None
) -> dict[str, Decision]:
    """The type of every tensor; tensors in the order of the new file. UsageError: an option matches nothing."""
    options = options or Options()
    most = FILE_TYPE_WEIGHT[target]
    matrices = {t.name: t for t in tensors.values() if is_weight_matrix(t.name, t.shape, model.arch)}
    if options.leave_output:
        matrices.pop(OUTPUT, None)
    decided = _chosen(matrices, options)
    if options.copy:
        return {t.name: decided.get(t.name, Decision(t.type, Reason.ASKED)) for t in tensors.values()}
    if options.ssm_type is not SsmType.LIKE_LLAMA:
        ssm = [t for t in tensors.values() if is_small_ssm(t.name, tensors) and t.name not in decided]
        decided |= {t.name: Decision(_ssm_type(t, options.ssm_type), Reason.SSM) for t in ssm}
    if target in (FileType.PQ2_0, FileType.PTQ1_0) and any(t.type in TERNARY for t in tensors.values()):
        # a model that was trained ternary: its other matrices were not
        others = [t for t in matrices.values() if t.type not in TERNARY and t.name not in decided]
        decided |= {t.name: Decision(t.type, Reason.NOT_TERNARY) for t in others}
    rest = {name: t.shape for name, t in matrices.items() if name not in decided}
    if target in _FLOATS or options.pure:
        types = dict.fromkeys(rest, most)
    elif options.mix:
        types = role_types(ROLE_MIXES[options.mix], {name: t.shape for name, t in matrices.items()}, model)
    else:
        n_attn_v = sum(part_of(t.name) is MatrixRole.ATTN_V for t in tensors.values())
        # whether embedding and output are one tensor depends on the whole model
        shapes = rest | ({OUTPUT: tensors[OUTPUT].shape} if OUTPUT in tensors else {})
        types = mixed_types(target, shapes, model, n_attn_v)
    output = OUTPUT if OUTPUT in tensors else EMBEDDING
    for name, shape in rest.items():
        kind = fitting(types[name], shape[-1])
        if kind is not types[name]:
            decided[name] = Decision(kind, Reason.SHAPE, types[name])
            continue
        if kind is most:
            reason = Reason.ASKED
        else:
            reason = Reason.OUTPUT if name == output else Reason.RECIPE
        decided[name] = Decision(kind, reason)
    return {t.name: decided.get(t.name, Decision(t.type, Reason.LEFT_ALONE)) for t in tensors.values()}


def _chosen(matrices: Mapping[str, Tensor], options: Options) -> dict[str, Decision]:
    """The decisions that options make by name."""
    patterns = []
    for pattern, wish in options.tensor_types:
        try:
            patterns.append((pattern, re.compile(pattern.lower()), wish))
        except re.error as error:
            raise UsageError(
                f"the pattern '{shown(pattern)}' of a tensor type is not a regular expression: {error}."
            ) from None
    output = OUTPUT if OUTPUT in matrices or options.leave_output else EMBEDDING
    decisions: dict[str, Decision] = {}
    for name, t in matrices.items():
        wishes: list[GGMLType | None] = [options.embedding_type] if name == EMBEDDING else []
        wishes += [options.output_type] if name == output else []
        wishes += [wish for _, expression, wish in patterns if expression.search(name)]
        wishes.append(options.by_name.get(name))
        kind = next((wish for wish in wishes if wish is not None), None)
        if kind is None:
            continue
        if t.shape[-1] % TRAITS[kind].block:
            raise UsageError(
                f"{shown(name)}: row of {t.shape[-1]} values is not a multiple of {TRAITS[kind].block} ({kind.name}).",
                remedy=Remedy.TENSOR_TYPE,
                value=f"{name}={fitting(kind, t.shape[-1]).name}",
            )
        decisions[name] = Decision(kind, Reason.CHOSEN)
    for pattern, expression, _ in patterns:
        if not any(expression.search(name) for name in matrices):
            raise UsageError(
                f"no weight matrix of the model has a name that the pattern '{shown(pattern)}' matches.",
                remedy=Remedy.LIST_TENSORS,
            )
    return decisions


def is_small_ssm(name: str, names: Container[str]) -> bool:
    """Whether `ssm_type` applies to this tensor of a file."""
    return bool(_SSM.search(name)) or (name.endswith(_FIRST) and name.removesuffix(_FIRST) + _SECOND in names)


def _ssm_type(t: Tensor, wanted: SsmType) -> GGMLType:
    # An already quantized tensor gains nothing from being stored as floats.
    return t.type if is_quantized(t.type) else fitting(GGMLType[wanted.name], t.shape[-1])


def is_weight_matrix(name: str, shape: tuple[int, ...], arch: str = "") -> bool:
    """Whether a tensor is a matrix to quantize. `shape` in numpy order; arch: general.architecture."""
    # ggml does not count outer dimensions of size 1.
    n_dims = next((len(shape) - i for i, n in enumerate(shape) if n > 1), 1)
    if n_dims < 2 or not name.endswith("weight"):
        return False
    left_alone = (*_LEFT_ALONE, *_LEFT_ALONE_OF.get(arch, ()))
    return not any(part in name for part in left_alone) and not _TIME_MIX.search(name)
