"""FP8 of fp8 (DeepSeek, transformers) and fbgemm_fp8.

NAME f8 [rows, columns]; NAME_scale_inv or NAME_scale, or BASE.scale of BASE.weight: one for all, one per row, or one
for every block of weight_block_size (DeepSeek: 128 x 128)
"""

from ..config import Config
from .matrix import EIGHT, Matrices, Tensors, block_size, in_place

# Settings that change no stored value.
IDLE = (
    "quant_method", "fmt", "scale_fmt", "expert_dtype", "activation_scheme", "activation_scale_ub", "kv_cache_scheme",
    "dequantize", "modules_to_convert", "modules_to_not_convert", "ignored_layers",
)  # fmt: skip


def fp8(tensors: Tensors, section: Config) -> Matrices:
    """8-bit values in their places and scales beside them."""
    block = block_size(section.get("weight_block_size"), section, "weight_block_size")
    for name, tensor in tensors.items():
        if tensor.dtype in EIGHT:
            names = (f"{name}_scale_inv", f"{name}_scale", f"{name.removesuffix('weight')}scale")
            scale = next((scale for scale in names if scale in tensors), None)
            if scale is not None:
                yield name, in_place(tensors, name, scale, block)
