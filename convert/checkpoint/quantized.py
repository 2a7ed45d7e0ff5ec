"""Quantized checkpoints (FP8, compressed-tensors, GPTQ, AWQ), dequantized some rows at a time; MXFP4 is kept."""

from dataclasses import dataclass, replace

import numpy as np

from hybrid.quant.ggml.errors import UnsupportedError, shown

from . import mxfp4
from .config import Config
from .quantized_layouts import METHODS, ReadRows, Tensors
from .tensor import Dtype, StoredTensor

KEYS = ("quantization_config", "compression_config")
# Scales of activations and caches, which GGUF does not quantize by scales of a checkpoint.
_UNUSED = (".input_scale", ".output_scale", ".activation_scale", "_activation_scale", ".q_scale", ".k_scale",
           ".v_scale", ".kv_scale", ".input_zero_point", ".input_global_scale")  # fmt: skip
_KEPT = {"float32": Dtype.F32, "float16": Dtype.F16, "bfloat16": Dtype.BF16}


@dataclass(frozen=True)
class DequantizedTensor(StoredTensor):
    """A matrix of f32 values that are computed when read; `file` and `offset` locate its integers."""

    rows: ReadRows | None = None
    first: int = 0  # index in `rows` of its row 0
    kept_as: Dtype = Dtype.BF16

    @property
    def kept(self) -> Dtype:
        return self.kept_as

    def part(self, start: tuple[int, ...], shape: tuple[int, ...]) -> StoredTensor:
        if len(shape) != 2 or start[1] or shape[1] != self.shape[1]:
            raise UnsupportedError(f"{shown(self.name)} is quantized and cannot be taken apart by columns.")
        return replace(self, shape=shape, first=self.first + start[0])

    def read(self, start: int, stop: int) -> np.ndarray:
        assert self.rows is not None and 0 <= start <= stop <= self.size
        columns = self.shape[1]
        begin, end = start // columns, -(-stop // columns)
        with np.errstate(over="ignore", invalid="ignore"):  # NaN and infinity are reported with the tensor's name
            values = self.rows(self.first + begin, self.first + end).reshape(-1)
        return values[start - begin * columns : stop - begin * columns]

    def same_bytes(self, other: StoredTensor) -> bool:
        step = max(1, (1 << 20) // self.shape[1]) * self.shape[1]
        return self.shape == other.shape and all(
            np.array_equal(self.floats(i, min(i + step, self.size)), other.floats(i, min(i + step, self.size)))
            for i in range(0, self.size, step)
        )


def method(config: Config) -> str:
    """The quantization method; "" if not quantized. UnsupportedError names an unsupported method."""
    section = _section(config)
    if section is None:
        return ""
    name = section.get("quant_method")
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


def _section(config: Config) -> Config | None:
    """The quantization settings, in the config or in its text part; None without any."""
    parts = [config]
    if isinstance(config.data.get("text_config"), dict):
        parts.append(config.section("text_config"))
    return next((part.section(*KEYS) for part in parts if part.get(*KEYS) is not None), None)


def dequantized(tensors: Tensors, config: Config) -> dict[str, StoredTensor]:
    """The tensors as if never quantized: matrices under the names of their weights, in reading order. MXFP4 tensors are
    unchanged."""
    section = _section(config)
    assert section is not None, "not quantized"
    if method(config) == mxfp4.METHOD:
        packed = section.get("format") == mxfp4.PACKED_FORMAT
        return mxfp4.with_packed(tensors) if packed else mxfp4.with_blocks(tensors)
    tensors = mxfp4.with_weights(tensors)
    kept = _kept(tensors, config)
    restored: dict[str, StoredTensor] = {}
    used: set[str] = set()
    matrices = dict(METHODS[method(config)](tensors, section))
    for name, tensor in tensors.items():
        if name in matrices:
            one = matrices[name]
            used |= set(one.parts)
            integers = tensors[name]
            restored[one.weight] = DequantizedTensor(
                one.weight, Dtype.F32, one.shape, integers.file, integers.offset, rows=one.rows, kept_as=kept
            )
        else:
            restored.setdefault(name, tensor)
    return {
        name: tensor
        for name, tensor in restored.items()
        if isinstance(tensor, DequantizedTensor) or (name not in used and not name.endswith(_UNUSED))
    }


def _kept(tensors: Tensors, config: Config) -> Dtype:
    """The default type for the file: the model's type before it was quantized."""
    named = config.get("torch_dtype", "dtype")
    if isinstance(named, str) and named in _KEPT:
        return _KEPT[named]
    plain = (t.dtype for t in tensors.values() if len(t.shape) == 2 and isinstance(t.dtype, Dtype))
    return next(plain, Dtype.BF16)
