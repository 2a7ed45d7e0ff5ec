"""Tensors that multiply what a matrix gives, for matrices in NVFP4: NAME.scale of NAME.weight, f32 [1] or [n_expert].

llama.cpp has them for these matrices, whatever their type; NAME.input_scale is for activations in NVFP4, unused here.
The keys general.tensor_extra.name and .prec_a4 say of which matrices llama.cpp may round the inputs to 4 bits.
"""

import re

TENSOR_EXTRA = "general.tensor_extra."  # lists of the same length: name, and settings of these tensors

_SCALED = re.compile(
    r"(blk\.\d+\.(attn_(q|k|v|output|qkv|gate)|ffn_(gate|up|down)(_shexp|_exps)?|ssm_(in|out|alpha|beta)"
    r"|nextn\.(eh_proj|shared_head_head))|output)\.weight"
)


def scale_of(weight: str) -> str:
    """The name of the factor of a matrix; "" if the format has no place for one."""
    return f"{weight.removesuffix('weight')}scale" if _SCALED.fullmatch(weight) else ""


def input_scale_of(weight: str) -> str:
    """The name of the factor of a matrix's inputs; "" if the format has no place for one."""
    return f"{weight.removesuffix('weight')}input_scale" if _SCALED.fullmatch(weight) else ""
