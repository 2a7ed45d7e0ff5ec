"""Which type each tensor of a quantized file gets: llama-quantize's rules (llama-quant.cpp, 2026-10), and two of ours.

- ssm_x and ssm_dt weights, which make the step size, B and C of every token, stay F32: they are small, and the
  recurrence accumulates their error. `keep_ssm_f32=False` is llama-quantize's rule: like any weight.
- Q4_0 files: the output matrix (or the tied embedding) is Q8_0. llama-quantize takes Q6_K, which has no code here yet.
"""

import re
from collections.abc import Collection
from dataclasses import dataclass
from enum import StrEnum

from .ggml.types import FILE_TYPE_WEIGHT, TRAITS, FileType, GGMLType

# Parts of names; such tensors keep the type they have in the source.
_LEFT_ALONE = (
    "_norm.weight",
    "ffn_gate_inp.weight",
    "ssm_conv1d",
    "shortconv.conv.weight",
    "attn_rel_b.weight",
    "altup",
    "laurel",
    "per_layer_model_proj",
    "position_embd.weight",
    "token_types.weight",
    "patch_embd",
)
_TIME_MIX = re.compile(r"time_mix_(first|w0|w1|w2|v0|v1|v2|a0|a1|a2|g1|g2|decay_w1|decay_w2|lerp_fused)\.weight")
_SSM = re.compile(r"\.ssm_(x|dt)\.weight$")
# What `quantize` writes: file types whose formats have encoders and whose rules are all here.
TARGETS = (FileType.F32, FileType.F16, FileType.BF16, FileType.Q8_0, FileType.Q4_0)
OUTPUT, EMBEDDING = "output.weight", "token_embd.weight"


class Reason(StrEnum):
    """Why a tensor is not of the type that was asked for."""

    ASKED = ""
    LEFT_ALONE = "not a matrix to multiply by"
    SSM = "SSM parameter"
    OUTPUT = "output matrix"
    SHAPE = "row is not whole blocks"


@dataclass(frozen=True)
class Decision:
    type: GGMLType
    reason: Reason


def is_quantized(kind: GGMLType) -> bool:
    return TRAITS[kind].block > 1


def decide(
    name: str,
    shape: tuple[int, ...],
    source: GGMLType,
    target: FileType,
    names: Collection[str],
    *,
    keep_ssm_f32: bool = True,
) -> Decision:
    """The type of tensor `name` in a file of type `target`.

    `shape` in numpy order; `source` is its type now; `names` are those of all tensors: without output.weight among
    them, the embedding is also the output matrix.
    """
    if keep_ssm_f32 and _SSM.search(name):
        # What has been quantized already gains nothing from being stored as F32.
        return Decision(source if is_quantized(source) else GGMLType.F32, Reason.SSM)
    if not _is_weight_matrix(name, shape):
        return Decision(source, Reason.LEFT_ALONE)
    kind, reason = FILE_TYPE_WEIGHT[target], Reason.ASKED
    if kind is GGMLType.Q4_0 and name == (OUTPUT if OUTPUT in names else EMBEDDING):
        kind, reason = GGMLType.Q8_0, Reason.OUTPUT
    if shape[-1] % TRAITS[kind].block:
        return Decision(GGMLType.F16, Reason.SHAPE)
    return Decision(kind, reason)


def _is_weight_matrix(name: str, shape: tuple[int, ...]) -> bool:
    # ggml does not count outer dimensions of size 1.
    n_dims = next((len(shape) - i for i, n in enumerate(shape) if n > 1), 1)
    if n_dims < 2 or not name.endswith("weight"):
        return False
    return not any(part in name for part in _LEFT_ALONE) and not _TIME_MIX.search(name)
