"""How quantized checkpoints lay out their matrices of [rows, columns], by the name of their quant_method."""

from collections.abc import Callable, Collection

from ..config import Config
from . import bitsandbytes, compressed_tensors, fp8, gptq, hqq, mlx, modelopt, torchao
from .block_floats import BlockFloats, ReadRows
from .matrix import Matrices, Matrix, Tensors

METHODS: dict[str, Callable[[Tensors, Config], Matrices]] = {
    "fp8": fp8.fp8,
    "fbgemm_fp8": fp8.fp8,
    "modelopt": modelopt.modelopt,
    "compressed-tensors": compressed_tensors.compressed_tensors,
    "gptq": gptq.gptq,
    "awq": gptq.awq,
    "mlx": mlx.mlx,
    "bitsandbytes": bitsandbytes.bitsandbytes,
    "torchao": torchao.torchao,
    "hqq": hqq.hqq,
}
# Settings without effect on the values; every other setting must be understood.
IDLE: dict[str, Collection[str]] = {
    "fp8": fp8.IDLE,
    "fbgemm_fp8": fp8.IDLE,
    "modelopt": modelopt.IDLE,
    "compressed-tensors": compressed_tensors.IDLE,
    "gptq": gptq.IDLE,
    "awq": gptq.IDLE,
    "mlx": mlx.IDLE,
    "bitsandbytes": bitsandbytes.IDLE,
    "torchao": torchao.IDLE,
    "hqq": hqq.IDLE,
}

__all__ = ["IDLE", "METHODS", "BlockFloats", "Matrices", "Matrix", "ReadRows", "Tensors"]
