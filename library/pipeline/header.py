"""Reads the architecture and type of a GGUF file, for lists of files: a tokenizer before them is skipped."""

import os
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
_MOST_KEYS, _MOST_ITEMS, _MOST_TEXT = 1000, 1 << 22, 64 << 10
_WINDOW = 1 << 20  # bytes read at once while texts are skipped


def read(path: Path) -> tuple[str, str]:
    """Architecture and file type; "" if the file has no such key, or is not GGUF."""
    found = {"general.architecture": "", "general.file_type": ""}
    with suppress(OSError, OverflowError, ValueError, struct.error), path.open("rb") as file:
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
    """Skips an array. ValueError: it is too long, or an array of arrays."""
    kind, n = struct.unpack("<IQ", _take(file, 12))
    if n > _MOST_ITEMS or kind == ValueType.ARRAY:
        raise ValueError("an array too long for a list")
    if kind == ValueType.STRING:
        _skip_texts(file, n)
    else:
        file.seek(n * _SIZES[ValueType(kind)], os.SEEK_CUR)


def _skip_texts(file: BinaryIO, n: int) -> None:
    """Skips n strings, in a buffer: a vocabulary has 100 000 and more, and a read for each would take longer."""
    window, at = b"", 0
    length = struct.Struct("<Q").unpack_from
    for _ in range(n):
        if len(window) - at < 8:
            window, at = window[at:] + file.read(_WINDOW), 0
        at += 8 + length(window, at)[0]
        if at > len(window):
            file.seek(at - len(window), os.SEEK_CUR)
            window, at = b"", 0
    file.seek(at - len(window), os.SEEK_CUR)


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
