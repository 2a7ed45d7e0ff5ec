"""Reads .safetensors: an 8-byte length, a JSON header of that length, then the tensors without gaps.

A file from outside is not trusted: names, types, shapes and offsets are checked against each other and against the size
of the file, before any data is read. Layout: github.com/huggingface/safetensors, "Format".
"""

import json
import math
import struct
from typing import Any

from hybrid.quant.ggml.errors import CheckpointError, shown
from hybrid.quant.ggml.reader import MAX_TENSORS

from .tensor import OTHER_SIZES, DataFile, Dtype, StoredTensor

MAX_HEADER = 100_000_000  # the limit of the reference implementation


def read_safetensors(file: DataFile) -> dict[str, StoredTensor]:
    """The tensors of a file by name. CheckpointError: truncated, damaged or contradictory."""
    header, start = _header(file)
    if len(header) > MAX_TENSORS:
        raise _damaged(file, f"its header has {len(header)} tensors, expected at most {MAX_TENSORS}")
    tensors: dict[str, StoredTensor] = {}
    noted = header.get("__metadata__")
    if isinstance(noted, dict):
        file.metadata = {key: value for key, value in noted.items() if isinstance(value, str)}
    for name, entry in header.items():
        if name != "__metadata__":
            tensors[name] = _tensor(file, name, entry, start)
    end = start
    for tensor in sorted(tensors.values(), key=lambda t: (t.offset, _nbytes(t))):
        if tensor.offset < end:
            raise _damaged(file, f"tensor {shown(tensor.name)} overlaps the one before it")
        if tensor.offset > end:
            raise _damaged(file, f"{tensor.offset - end} bytes before tensor {shown(tensor.name)} belong to none")
        end = tensor.offset + _nbytes(tensor)
        if end > file.nbytes:
            raise CheckpointError(
                f"{file.where} is cut off: {shown(tensor.name)} ends at byte {end}, the file has {file.nbytes}. "
                "Download it again."
            )
    if end < file.nbytes:
        raise _damaged(file, f"{file.nbytes - end} bytes at its end belong to no tensor")
    return tensors


def _header(file: DataFile) -> tuple[dict[str, Any], int]:
    """The parsed header, and the offset of the data."""
    if file.nbytes < 8:
        raise CheckpointError(f"{file.where} is cut off: it has {file.nbytes} bytes. Download it again.")
    (length,) = struct.unpack("<Q", file.read(0, 8))
    if not 2 <= length <= MAX_HEADER:
        raise _damaged(file, f"it says that its header has {length} bytes (is it a safetensors file at all?)")
    if 8 + length > file.nbytes:
        raise CheckpointError(
            f"{file.where} is cut off: its header ends at byte {8 + length}, the file has {file.nbytes}. "
            "Download it again."
        )
    try:
        header = json.loads(file.read(8, length).decode("utf-8"), object_pairs_hook=_unique)
    except _DuplicateError as error:
        raise _damaged(file, f"{shown(error.args[0])} occurs twice in its header") from None
    except (ValueError, RecursionError):
        raise _damaged(file, "its header is not JSON") from None
    if not isinstance(header, dict):
        raise _damaged(file, "its header is not a JSON object")
    return header, 8 + length


class _DuplicateError(Exception):
    pass


def _unique(items: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(items)
    if len(members) != len(items):
        seen: set[str] = set()
        for key, _ in items:
            if key in seen:
                raise _DuplicateError(key)
            seen.add(key)
    return members


def _tensor(file: DataFile, name: str, entry: Any, start: int) -> StoredTensor:
    what = f"tensor {shown(name)}"
    if not isinstance(entry, dict) or entry.keys() != {"dtype", "shape", "data_offsets"}:
        raise _damaged(file, f"{what} is not described by dtype, shape and data_offsets")
    dtype, shape, offsets = entry["dtype"], entry["shape"], entry["data_offsets"]
    if not isinstance(dtype, str) or (dtype not in Dtype.__members__ and dtype not in OTHER_SIZES):
        raise _damaged(file, f"{what} has the unknown type {shown(dtype)}")
    if not _naturals(shape) or not _naturals(offsets) or len(offsets) != 2 or len(shape) > 16:
        raise _damaged(file, f"{what} has the shape {shown(shape)} and the offsets {shown(offsets)}")
    size = Dtype[dtype].itemsize if dtype in Dtype.__members__ else OTHER_SIZES[dtype]
    if math.prod(shape) * size != offsets[1] - offsets[0]:
        raise _damaged(
            file, f"{what} of shape {shown(shape)} and type {dtype} has {offsets[1] - offsets[0]} bytes of data"
        )
    known: Dtype | str = Dtype[dtype] if dtype in Dtype.__members__ else dtype
    return StoredTensor(name, known, tuple(shape), file, start + offsets[0])


def _naturals(value: Any) -> bool:
    return isinstance(value, list) and all(type(n) is int and 0 <= n < 1 << 63 for n in value)


def _nbytes(tensor: StoredTensor) -> int:
    return tensor.size * (tensor.dtype.itemsize if isinstance(tensor.dtype, Dtype) else OTHER_SIZES[tensor.dtype])


def _damaged(file: DataFile, what: str) -> CheckpointError:
    return CheckpointError(f"{file.where} is damaged: {what}. Download it again.")
