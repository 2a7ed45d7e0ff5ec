"""The file of a saved sequence: a small self-describing container of named arrays.

    byte   field      type    meaning
       0   magic      8s      b"hybstate"
       8   version    u32     1; 2 where tokens were moved (a shifted context); 3 where the header has `keys_values`.
                              Older versions of hybrid cannot read the higher ones
      12   crc32      u32     of the header's bytes
      16   nbytes     u64     length of the header
      24   header     utf-8   one JSON object (below)
       .   padding    zeros   up to the next multiple of 64
       .   arrays             one after another, each padded with zeros to a multiple of 64, also the last one

All numbers are little endian. The header names the writer, the model, the number of tokens, what the application stores
with them (`extra`: sampler, chat history), the types and the basis of keys and values, and for every array its name,
dtype, shape, `offset` (from the end of the header's padding), size and crc32. This module does not know what the arrays
mean.

A file from outside is hostile until checked: reading verifies the header before it trusts a number in it, verifies each
array's checksum before it returns the array, and reports an error in one line (`StateError`).
"""

import mmap
import os
import struct
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np

from hybrid.quant.ggml.errors import Remedy, StateError
from hybrid.quant.ggml.replacing import replace_file

from .state_header import (
    ALIGNMENT,
    DTYPE_NAMES,
    DTYPES,
    MAX_HEADER,
    PLAIN_VERSION,
    VERSION,
    ArrayEntry,
    HeaderError,
    StateHeader,
    encode_header,
    padded,
    parse_header,
)

MAGIC = b"hybstate"
_PROLOGUE = struct.Struct("<8sIIQ")


def write_state(path: str | os.PathLike[str], header: StateHeader, arrays: Iterable[tuple[str, np.ndarray]]) -> int:
    """Write a state file and return its size in bytes. The old file stays whole until the new one is on the disk.

    Raises StateError when it cannot be written (no such folder, disk full). Raises ValueError or TypeError for mistakes
    of the caller: an unsupported dtype, a repeated name, an `extra` that is not JSON.
    """
    path = Path(path)
    entries: list[ArrayEntry] = []
    payload: list[np.ndarray] = []
    offset = 0
    for name, given in arrays:
        # ascontiguousarray makes a scalar one-dimensional, so the shape comes from `given`
        array = np.ascontiguousarray(given, given.dtype.newbyteorder("<"))
        if array.dtype not in DTYPE_NAMES:
            raise ValueError(f"state array {name}: dtype {array.dtype} is not one of {', '.join(DTYPES)}")
        raw = array.reshape(-1).view(np.uint8)
        entries.append(
            ArrayEntry(name, DTYPE_NAMES[array.dtype], given.shape, offset, raw.nbytes, zlib.crc32(raw.data))
        )
        payload.append(raw)
        offset += padded(raw.nbytes)
    if len({entry.name for entry in entries}) != len(entries):
        raise ValueError("state arrays: a name is given twice")
    text = encode_header(header, entries)
    prologue = _PROLOGUE.pack(MAGIC, header.version, zlib.crc32(text), len(text))
    head = prologue + text
    try:
        replace_file(path, [head + bytes(padded(len(head)) - len(head)), *_with_padding(payload)])
    except OSError as error:
        raise StateError(f"{path}: cannot be written: {error.strerror or error}.") from error
    return padded(len(head)) + offset


def _with_padding(payload: list[np.ndarray]) -> Iterator[bytes | memoryview]:
    for raw in payload:
        yield raw.data
        yield bytes(padded(raw.nbytes) - raw.nbytes)


class StateFile:
    """An open state file: `header`, and its arrays by name, mapped from the disk and checked on first access.

    The arrays are read-only views of the mapping and live as long as the file is open: copy them to keep them.
    """

    def __init__(self, path: Path, header: StateHeader, data: memoryview, mapping: mmap.mmap):
        self.path = path
        self.header = header
        self._entries = {entry.name: entry for entry in header.arrays}
        self._data = data
        self._mapping = mapping
        self._arrays: dict[str, np.ndarray] = {}

    def __contains__(self, name: object) -> bool:
        return name in self._entries

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)

    def dtype(self, name: str) -> np.dtype[Any]:
        """The dtype of an array that is in the file."""
        return DTYPES[self._entries[name].dtype]

    def __getitem__(self, name: str) -> np.ndarray:
        """The array `name`. Raises StateError when the file has no such array or its bytes were changed."""
        if name in self._arrays:
            return self._arrays[name]
        if name not in self._entries:
            raise StateError(f"{self.path.name}: array '{name}' is missing.", remedy=Remedy.WITHOUT_STATE)
        entry = self._entries[name]
        end = entry.offset + entry.nbytes
        raw = self._data[entry.offset : end]
        if zlib.crc32(raw) != entry.crc32 or any(self._data[end : padded(end)]):
            raise StateError(
                f"{self.path.name}: array '{name}' is damaged (its checksum differs).", remedy=Remedy.WITHOUT_STATE
            )
        array = np.frombuffer(raw, DTYPES[entry.dtype]).reshape(entry.shape)
        self._arrays[name] = array
        return array

    def verify(self) -> None:
        """Raises StateError unless every array matches its checksum."""
        for name in self:
            self[name]

    def expect(self, name: str, dtype: np.dtype[Any] | type, shape: tuple[int, ...]) -> np.ndarray:
        """The array `name`; raises StateError, with both sides, unless it has this dtype and shape."""
        array = self[name]
        if array.dtype != np.dtype(dtype) or array.shape != shape:
            wanted = DTYPE_NAMES.get(np.dtype(dtype), str(np.dtype(dtype)))
            raise StateError(
                f"{self.path.name}: array '{name}' is {_describe(self._entries[name].dtype, array.shape)}, this model "
                f"needs {_describe(wanted, shape)}.",
                remedy=Remedy.WITHOUT_STATE,
            )
        return array

    def close(self) -> None:
        """Close the mapping; it lasts as long as arrays that are still referenced."""
        self._arrays.clear()
        self._data.release()
        try:
            self._mapping.close()
        except BufferError:
            return

    def __enter__(self) -> "StateFile":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def read_state(path: str | os.PathLike[str]) -> StateFile:
    """Open a state file and check all but the contents of the arrays. Raises StateError when it is not sound."""
    path = Path(path)
    try:
        if not path.is_file():
            what = "no such file" if not path.exists() else "is a folder" if path.is_dir() else "is not a regular file"
            raise StateError(f"{path}: {what}.", remedy=Remedy.WITHOUT_STATE)
        with path.open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            if size < _PROLOGUE.size:
                raise _damaged(path, f"it has {size} bytes, fewer than the {_PROLOGUE.size} any state file has")
            mapping = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    except OSError as error:
        raise StateError(f"{path}: cannot be read: {error.strerror or error}.") from error
    view = memoryview(mapping)
    try:
        header, start = _read_header(path, view)
        return StateFile(path, header, view[start:], mapping)
    except BaseException:
        view.release()
        mapping.close()
        raise
    finally:
        view.release()


def _read_header(path: Path, view: memoryview) -> tuple[StateHeader, int]:
    """The checked header and the byte at which the data starts."""
    magic, version, crc, nbytes = _PROLOGUE.unpack_from(view)
    if magic != MAGIC:
        raise StateError(f"{path.name} is not a state file of hybrid (magic {magic!r}).", remedy=Remedy.WITHOUT_STATE)
    if not PLAIN_VERSION <= version <= VERSION:
        update = " Update hybrid." if version > VERSION else ""
        raise StateError(
            f"{path.name}: state format {version}, this version reads {PLAIN_VERSION} to {VERSION}.{update}",
            remedy=None if update else Remedy.WITHOUT_STATE,
        )
    if nbytes > min(MAX_HEADER, len(view) - _PROLOGUE.size):
        raise _damaged(path, f"its header claims {nbytes} bytes, the file has {len(view)}")
    text = bytes(view[_PROLOGUE.size : _PROLOGUE.size + nbytes])
    if zlib.crc32(text) != crc:
        raise _damaged(path, "the checksum of its header differs")
    start = padded(_PROLOGUE.size + nbytes)
    try:
        header, end = parse_header(text)
    except HeaderError as error:
        raise _damaged(path, str(error)) from None
    if start + end != len(view):
        problem = "is cut off" if start + end > len(view) else "has extra bytes"
        raise StateError(
            f"{path.name} {problem}: {start + end} bytes expected, {len(view)} found.", remedy=Remedy.WITHOUT_STATE
        )
    if any(view[_PROLOGUE.size + nbytes : start]):
        raise _damaged(path, "the padding after its header is not zero")
    return header, start


def _damaged(path: Path, what: str) -> StateError:
    return StateError(f"{path.name} is damaged: {what}.", remedy=Remedy.WITHOUT_STATE)


def _describe(dtype: str, shape: tuple[int, ...]) -> str:
    return f"{dtype} [{', '.join(map(str, shape))}]"


__all__ = ["ALIGNMENT", "MAGIC", "VERSION", "StateFile", "StateHeader", "read_state", "write_state"]
