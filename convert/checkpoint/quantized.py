"""Quantized checkpoints, dequantized some rows at a time; 4-bit floats are kept where GGUF has the same."""

from collections.abc import Iterator

from hybrid.quant.ggml.errors import UnsupportedError, shown

from . import mlx_families, mxfp4
from .config import Config
from .dequantized import DequantizedTensor
from .layouts import IDLE, METHODS, Matrix, Tensors
from .tensor import Dtype, StoredTensor

# mlx-lm writes its settings under the first two names, and older versions only under the first.
KEYS = ("quantization", "quantization_config", "compression_config")
# Scales of activations and caches, which GGUF does not quantize by scales of a checkpoint.
_UNUSED = (".input_scale", ".output_scale", ".activation_scale", "_activation_scale", ".q_scale", ".k_scale",
           ".v_scale", ".kv_scale", ".input_zero_point", ".input_global_scale")  # fmt: skip
_UNUSED_OF = {"modelopt": (".k_bias", ".v_bias")}  # of the same caches
_KEPT = {"float32": Dtype.F32, "float16": Dtype.F16, "bfloat16": Dtype.BF16}


def method(config: Config) -> str:
    """The quantization method; "" if not quantized. UnsupportedError names an unsupported method."""
    section = _section(config)
    if section is None:
        return ""
    name = section.get("quant_method")
    if name is None and section.get("bits") is not None and section.get("group_size") is not None:
        return "mlx"
    if not isinstance(name, str):
        raise UnsupportedError(
            f"{config.where}: the checkpoint is quantized already, and quant_method does not say how. "
            "Give the one it was made from."
        )
    if name not in (*METHODS, mxfp4.METHOD):
        known = ", ".join((*METHODS, mxfp4.METHOD))
        raise UnsupportedError(
            f"{config.where}: the checkpoint is quantized already, by {shown(name)}, which is not read; {known} are. "
            "Give the one it was made from."
        )
    return mxfp4.METHOD if section.get("format") == mxfp4.PACKED_FORMAT else name


def check_supported(config: Config) -> None:
    """UnsupportedError, by the config alone: the method, or an MLX folder's family, is not supported."""
    if method(config) == "mlx":
        mlx_families.changes_of(config)


def _section(config: Config) -> Config | None:
    """The quantization settings, in the config or in its text part; None without any."""
    return next((part.section(*KEYS) for part in _parts(config) if part.get(*KEYS) is not None), None)


def plain(tensors: Tensors, config: Config) -> dict[str, StoredTensor]:
    """The tensors of the checkpoint that was quantized: dequantized, and without the changes of mlx-lm."""
    found = dequantized(tensors, config) if method(config) else dict(tensors)
    return mlx_families.restored(found, config) if _of_mlx(tensors, config) else found


def original_names(tensors: Tensors, config: Config) -> list[str]:
    """The names that tensors had before mlx-vlm changed how they begin."""
    changes = mlx_families.changes_of(config) if _of_mlx(tensors, config) else None
    return [changes.name(name) if changes else name for name in tensors]


def _of_mlx(tensors: Tensors, config: Config) -> bool:
    return method(config) == "mlx" or any(t.file.metadata.get("format") == "mlx" for t in tensors.values())


def dequantized(tensors: Tensors, config: Config) -> dict[str, StoredTensor]:
    """The tensors as if never quantized: matrices under the names of their weights, in reading order. MXFP4 tensors are
    unchanged."""
    section = _section(config)
    assert section is not None, "not quantized"
    how = method(config)
    unused = (*_UNUSED, *_UNUSED_OF.get(how, ()))
    if how == mxfp4.METHOD:
        packed = section.get("format") == mxfp4.PACKED_FORMAT
        return mxfp4.with_packed(tensors) if packed else mxfp4.with_blocks(tensors)
    tensors = mxfp4.with_weights(tensors)
    kept = _kept(tensors, config)
    restored: dict[str, StoredTensor] = {}
    used: set[str] = set()
    matrices = dict(METHODS[how](tensors, section))
    section.refuse_unread(IDLE[how])
    for name, tensor in tensors.items():
        if name in matrices:
            one = matrices[name]
            used |= set(one.parts)
            restored[one.weight] = _tensor(one, tensor, kept)
        else:
            restored.setdefault(name, tensor)
    return {
        name: tensor
        for name, tensor in restored.items()
        if isinstance(tensor, DequantizedTensor) or (name not in used and not name.endswith(unused))
    }


def _tensor(one: Matrix, stored: StoredTensor, kept: Dtype) -> DequantizedTensor:
    return DequantizedTensor(
        one.weight, Dtype.F32, one.shape, stored.file, stored.offset, rows=one.rows, kept_as=kept, packed=one.packed
    )


def _kept(tensors: Tensors, config: Config) -> Dtype:
    """The default type for the file: the model's type before it was quantized."""
    for part in _parts(config):
        named = part.get("torch_dtype", "dtype")
        if isinstance(named, str) and named in _KEPT:
            return _KEPT[named]
    floats = (t.dtype for t in tensors.values() if len(t.shape) == 2 and isinstance(t.dtype, Dtype))
    return next(floats, Dtype.BF16)


def _parts(config: Config) -> Iterator[Config]:
    """The config, and its text part."""
    yield config
    if isinstance(config.data.get("text_config"), dict):
        yield config.section("text_config")
