"""torchao: tensor subclasses that transformers 5 saves in safetensors, each as several tensors.

Int8Tensor, IntxUnpackedToInt8Tensor
    BASE._weight_qdata i8 [rows, columns], BASE._weight_scale [rows, columns / n], BASE._weight_zero_point (may be
    absent): one per block of rows and columns
metadata of the file: for BASE.weight JSON with _type, _data.block_size, _tensor_data_names
"""

import json

from hybrid.quant.ggml.errors import CheckpointError, UnsupportedError, shown

from ..config import Config
from .matrix import Matrices, Matrix, Tensors, bytes_of, kind_of, matrix_shape, need, scaled, spread

# Settings that change no stored value: which layers were left alone.
IDLE = ("quant_method", "modules_to_not_convert", "include_input_output_embeddings", "untie_embedding_weights")
SETTINGS = ("Int8WeightOnlyConfig", "IntxWeightOnlyConfig")
KINDS = ("Int8Tensor", "IntxUnpackedToInt8Tensor")
# The tensors show all of these.
_IDLE_SETTINGS = ("granularity", "group_size", "intx_choose_qparams_algorithm", "intx_packing_format", "mapping_type",
                  "scale_dtype", "set_inductor_config", "weight_dtype", "layout", "version")  # fmt: skip
_PARTS = ("qdata", "scale", "zero_point")
_IDLE_DATA = ("dtype", "target_dtype", "act_quant_kwargs", "activation_quantization", "reduce_range")


def torchao(tensors: Tensors, section: Config) -> Matrices:
    """Matrices of 8 bits, and of fewer in 8 each."""
    kinds = section.section("quant_type")
    if list(kinds.data) not in ([], ["default"]):
        raise UnsupportedError(f"{kinds.where}: {shown(next(iter(kinds.data)))} is not supported, only default is.")
    default = kinds.section("default")
    default.expects("_type", *SETTINGS)
    default.section("_data").refuse_unread(_IDLE_SETTINGS)
    default.refuse_unread(("_version",))
    metadata = {name: text for file in {t.file for t in tensors.values()} for name, text in file.metadata.items()}
    for name, text in metadata.items():
        described = _described(name, text) if name.endswith("weight") else None
        if described is not None and described.get("_type") != "Tensor":
            yield _matrix(tensors, name, described)


def _described(name: str, text: str) -> Config | None:
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        return None
    return Config(found, f"the metadata of {shown(name)}")


def _matrix(tensors: Tensors, name: str, described: Config) -> tuple[str, Matrix]:
    described.expects("_type", *KINDS)
    base = name.removesuffix("weight") + "_weight_"
    names = described.get("_tensor_data_names")
    if not isinstance(names, list) or not {"qdata", "scale"} <= set(names) <= set(_PARTS):
        raise described.wrong("_tensor_data_names", "qdata, scale and perhaps zero_point")
    data = described.section("_data")
    block = data.get("block_size")
    qdata, scale = need(tensors, base + "qdata", "I8"), need(tensors, base + "scale")
    shape = matrix_shape(qdata)
    zero = need(tensors, base + "zero_point") if "zero_point" in names else None
    if not isinstance(block, list) or len(block) != 2 or not all(type(n) is int and n > 0 for n in block):
        raise data.wrong("block_size", "two positive integers")
    data.refuse_unread(_IDLE_DATA)
    given = tuple(n // size for n, size in zip(shape, block, strict=True))
    for one in (scale, *([zero] if zero is not None else [])):
        if one.size != given[0] * given[1] or any(n % size for n, size in zip(shape, block, strict=True)):
            raise CheckpointError(f"{shown(one.name)} is {kind_of(one)} for {list(shape)} in blocks of {block}.")
    of_blocks = (block[0], block[1])
    less = spread(zero, shape, of_blocks, None) if zero is not None else None
    rows = scaled(bytes_of(qdata), spread(scale, shape, of_blocks, None), less)
    return qdata.name, Matrix(name, shape, rows, tuple(base + part for part in _PARTS))
