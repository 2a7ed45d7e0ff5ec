"""Reads the first keys of a GGUF file, without its tokenizer, for lists of files."""

import struct
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

from hybrid.quant.ggml.types import FileType, ValueType

_SIZES = {
    ValueType.UINT8: 1, ValueType.INT8: 1, ValueType.UINT16: 2, ValueType.INT16: 2, ValueType.UINT32: 4,
    ValueType.INT32: 4, ValueType.FLOAT32: 4, ValueType.BOOL: 1, ValueType.UINT64: 8, ValueType.INT64: 8,
    ValueType.FLOAT64: 8,
}  # fmt: skip
_MOST_KEYS, _MOST_ITEMS, _MOST_TEXT = 200, 1000, 64 << 10


def read(path: Path) -> tuple[str, str]:
    """Architecture and file type; "" if a key is not before the first long array, or the file is not GGUF."""
    found = {"general.architecture": "", "general.file_type": ""}
    with suppress(OSError, ValueError, struct.error), path.open("rb") as file:
        magic, version, _, count = struct.unpack("<4sIQQ", _take(file, 24))
        if magic != b"GGUF" or version not in (2, 3):
            return "", ""
        for _ in range(min(count, _MOST_KEYS)):
            key = _text(file)
            kind = ValueType(struct.unpack("<I", _take(file, 4))[0])
            if kind is ValueType.ARRAY:
                _skip_array(file)
                continue
            value = _text(file) if kind is ValueType.STRING else _take(file, _SIZES[kind])
            if key == "general.architecture" and isinstance(value, str):
                found[key] = value
            elif key == "general.file_type" and kind is ValueType.UINT32 and isinstance(value, bytes):
                found[key] = FileType(int.from_bytes(value, "little")).name
            if all(found.values()):
                break
    return found["general.architecture"], found["general.file_type"]


def _skip_array(file: BinaryIO) -> None:
    """Skips an array. ValueError: it is a long one, where the tokenizer begins."""
    kind, n = struct.unpack("<IQ", _take(file, 12))
    if n > _MOST_ITEMS or kind == ValueType.ARRAY:
        raise ValueError("an array too long for a list")
    for _ in range(n):
        if kind == ValueType.STRING:
            _text(file)
        else:
            _take(file, _SIZES[ValueType(kind)])


def _take(file: BinaryIO, n: int) -> bytes:
    data = file.read(n)
    if len(data) < n:
        raise ValueError("the file ends")
    return data


def _text(file: BinaryIO) -> str:
    (n,) = struct.unpack("<Q", _take(file, 8))
    if n > _MOST_TEXT:
        raise ValueError("a text too long for a list")
    return _take(file, n).decode("utf-8", "replace")
