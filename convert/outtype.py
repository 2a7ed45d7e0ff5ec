"""The type of each tensor: llama.cpp's converter's rules, so that the files are equal."""

import re
from collections.abc import Collection, Iterable

from hybrid.quant.ggml.errors import UsageError, shown
from hybrid.quant.ggml.types import FILE_TYPE_WEIGHT, TRAITS, FileType, GGMLType

from .checkpoint import Dtype, StoredTensor
from .checkpoint.dequantized import DequantizedTensor

# `auto` keeps the checkpoint's own type; F64 is written as F32.
OUTTYPES: dict[str, FileType] = {
    "f32": FileType.F32,
    "f16": FileType.F16,
    "bf16": FileType.BF16,
    "q8_0": FileType.Q8_0,
    "nvfp4": FileType.NVFP4,  # auto, of a checkpoint that has NVFP4
}
_AUTO = {Dtype.F64: FileType.F32, Dtype.F32: FileType.F32, Dtype.F16: FileType.F16, Dtype.BF16: FileType.BF16}
# Small matrices that inference needs exact.
_ALWAYS_F32 = re.compile(
    r"(^|\.)(ffn_gate_inp|ffn_gate_inp_shexp|ssm_conv1d(_[qkv]|_attn|_ffn)?|attn_rel_b|msg_(q|k|v|ffn)_(forget|gain)|shortconv\.conv|position_embd|prefix_embd|token_types"
    r"|output_hc_(fn|base|scale)|hc_(attn|ffn|head)_(fn|base|scale)|indexer\.proj|indexer_compressor_(gate|ape)"
    r"|attn_compressor_ape|altup_(predict|correct)_coef"
    r"|ffn_router_(in|fc1|fc2)|time_mix_(first|w1|w2|decay_w1|decay_w2|lerp_fused))\.weight$"
)
PATCHES = "v.patch_embd.weight"  # of a vision tower; its second frame is PATCHES.1


def outtype(name: str) -> FileType | None:
    """The file type of this name; None for auto. UsageError lists all names."""
    key = name.strip().lower()
    if key == "auto":
        return None
    if key not in OUTTYPES:
        raise UsageError(f"outtype {shown(name)} is unknown. Choose one of auto, {', '.join(OUTTYPES)}.")
    return OUTTYPES[key]


def automatic(tensors: Iterable[StoredTensor]) -> FileType:
    """The type of the first matrix. torch_dtype in the config is ignored: it is often wrong."""
    for tensor in tensors:
        kind = tensor.kept_as if isinstance(tensor, DequantizedTensor) else tensor.kept
        if len(tensor.shape) >= 2 and isinstance(kind, Dtype):
            return _AUTO[kind]
    return FileType.F16


def stated_type(file_type: FileType, kinds: Collection[GGMLType]) -> FileType:
    """general.file_type for tensors of these types: `file_type`, but NVFP4 or PQ2_0 if there is any beside floats, or
    MXFP4_MOE if there is MXFP4."""
    if FILE_TYPE_WEIGHT[file_type] not in (GGMLType.F32, GGMLType.F16, GGMLType.BF16):
        return file_type
    if GGMLType.NVFP4 in kinds:
        return FileType.NVFP4
    if GGMLType.PQ2_0 in kinds:
        return FileType.PQ2_0
    return FileType.MXFP4_MOE if GGMLType.MXFP4 in kinds else file_type


def weight_type(name: str, shape: tuple[int, ...], file_type: FileType) -> GGMLType:
    """The type of the tensor `name` (GGUF) of `shape` (numpy order) in a file of `file_type`."""
    if name.startswith(PATCHES):  # there a convolution, of F16 or F32
        return GGMLType.F16 if file_type is FileType.F16 else GGMLType.F32
    if len(shape) < 2 or name.endswith("_norm.weight"):
        return GGMLType.F32
    if _ALWAYS_F32.search(name) or not name.endswith(".weight"):  # not a weight: ssm_a, ssm_d, biases
        return GGMLType.F32
    kind = FILE_TYPE_WEIGHT[file_type]
    return kind if shape[-1] % TRAITS[kind].block == 0 else GGMLType.F16
