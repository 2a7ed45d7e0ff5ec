"""The file of a saved sequence: a small self-describing container of named arrays.

    byte   field      type    meaning
       0   magic      8s      b"hybstate"
       8   version    u32     1
      12   crc32      u32     of the header's bytes
      16   nbytes     u64     length of the header
      24   header     utf-8   one JSON object (below)
       .   padding    zeros   up to the next multiple of 64
       .   arrays             one after another, each padded with zeros to a multiple of 64, the last one too

All numbers are little endian. The header says who wrote the file, for which model, how many tokens it holds, what the
application keeps with it (`extra`: sampler, chat history), and for every array its name, dtype, shape, place (`offset`
counts from the end of the header's padding), size and crc32. Nothing here knows what the arrays mean.

A file from outside is hostile until checked: reading verifies the header before it trusts a number in it, each array's
checksum before it hands it out, and says what is wrong in one line (`StateError`).
"""

import json
import mmap
import os
import secrets
import struct
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import metadata
from math import prod
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
from hybrid.quant.ggml.errors import StateError

MAGIC = b"hybstate"
VERSION = 1
ALIGNMENT = 64
_PROLOGUE = struct.Struct("<8sIIQ")
# A header holds names and an application's small extras. The limits only keep a damaged length from being believed.
_MAX_HEADER = 256 << 20
_MAX_ARRAYS = 1 << 20
_MAX_DIMS = 8

_DTYPES: dict[str, np.dtype[Any]] = {
    name: np.dtype(code)
    for name, code in {
        "u8": "|u1", "i8": "|i1", "u16": "<u2", "i16": "<i2", "u32": "<u4", "i32": "<i4", "u64": "<u8", "i64": "<i8",
        "f16": "<f2", "f32": "<f4", "f64": "<f8",
    }.items()
}  # fmt: skip
_DTYPE_NAMES = {dtype: name for name, dtype in _DTYPES.items()}


@dataclass(frozen=True)
class ArrayEntry:
    """Where one array is. `offset` is in bytes from the start of the data, a multiple of 64."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    offset: int
    nbytes: int
    crc32: int


@dataclass(frozen=True)
class StateHeader:
    """What a state file says about itself. `arrays`, `library` and `version` are filled in by `write_state`."""

    fingerprint: str
    model: str
    """How a person knows the model: name and file type, as in 'granite-4.0-h-tiny Q4_K'."""
    n_tokens: int
    extra: Mapping[str, Any] = field(default_factory=dict)
    """JSON values that the caller wants back: sampler and RNG state, chat history."""
    cache: Sequence[Mapping[str, Any]] = ()
    """What the file holds of the prompt cache: see cache_file.py. Files without any have no such list."""
    library: str = ""
    version: int = VERSION
    arrays: tuple[ArrayEntry, ...] = ()

    def check_model(self, fingerprint: str, model: str, path: Path) -> None:
        """Raise StateError unless the state belongs to the model with this fingerprint."""
        if self.fingerprint != fingerprint:
            raise StateError(
                f"{path.name} was saved by '{self.model}', not by this model ('{model}'). Start without --state."
            )


def write_state(path: str | os.PathLike[str], header: StateHeader, arrays: Iterable[tuple[str, np.ndarray]]) -> int:
    """Write a state file and return its size in bytes. The old file stays whole until the new one is on the disk.

    Raises StateError when it cannot be written (no such folder, disk full). A dtype that the container does not have,
    a name given twice or an `extra` that is not JSON is the caller's mistake: ValueError or TypeError.
    """
    path = Path(path)
    entries: list[ArrayEntry] = []
    payload: list[np.ndarray] = []
    offset = 0
    for name, given in arrays:
        # ascontiguousarray makes a scalar one-dimensional, so the shape is taken before
        array = np.ascontiguousarray(given, given.dtype.newbyteorder("<"))
        if array.dtype not in _DTYPE_NAMES:
            raise ValueError(f"state array {name}: dtype {array.dtype} is not one of {', '.join(_DTYPES)}")
        raw = array.reshape(-1).view(np.uint8)
        entries.append(
            ArrayEntry(name, _DTYPE_NAMES[array.dtype], given.shape, offset, raw.nbytes, zlib.crc32(raw.data))
        )
        payload.append(raw)
        offset += _padded(raw.nbytes)
    if len({entry.name for entry in entries}) != len(entries):
        raise ValueError("state arrays: a name is given twice")
    text = json.dumps(
        {
            "library": _library(),
            "model": {"fingerprint": header.fingerprint, "description": header.model},
            "n_tokens": header.n_tokens,
            "extra": dict(header.extra),
            **({"cache": list(header.cache)} if header.cache else {}),
            "arrays": [vars(entry) for entry in entries],
        },
        ensure_ascii=False,
        allow_nan=False,
        separators=(",", ":"),
    ).encode()
    prologue = _PROLOGUE.pack(MAGIC, VERSION, zlib.crc32(text), len(text))
    head = prologue + text
    try:
        _replace(path, [head + bytes(_padded(len(head)) - len(head)), *_with_padding(payload)])
    except OSError as error:
        raise StateError(f"{path}: cannot be written: {error.strerror or error}.") from error
    return _padded(len(head)) + offset


def _with_padding(payload: list[np.ndarray]) -> Iterator[bytes | memoryview]:
    for raw in payload:
        yield raw.data
        yield bytes(_padded(raw.nbytes) - raw.nbytes)


def _replace(path: Path, chunks: Iterable[bytes | memoryview]) -> None:
    """Write `chunks` beside `path` and rename: after a crash at any moment there is the old file or the new one."""
    # not mkstemp, which would leave the file unreadable to everybody whom the umask allows
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}.tmp")
    try:
        with temporary.open("xb") as file:
            for chunk in chunks:
                file.write(chunk)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    if hasattr(os, "O_DIRECTORY"):
        # the rename itself is only on the disk when the folder is
        folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


class StateFile:
    """An open state file: `header`, and its arrays by name, mapped from the disk and checked when first asked for.

    The arrays are read-only views of the mapping and live as long as the file is open: copy what is to be kept.
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
        """Of an array that is in the file."""
        return _DTYPES[self._entries[name].dtype]

    def __getitem__(self, name: str) -> np.ndarray:
        """The array `name`. StateError when the file has none or its bytes were changed."""
        if name in self._arrays:
            return self._arrays[name]
        if name not in self._entries:
            raise StateError(f"{self.path.name}: array '{name}' is missing. Start without --state.")
        entry = self._entries[name]
        raw = self._data[entry.offset : entry.offset + entry.nbytes]
        if zlib.crc32(raw) != entry.crc32:
            raise StateError(f"{self.path.name}: array '{name}' is damaged (checksum differs). Start without --state.")
        array = np.frombuffer(raw, _DTYPES[entry.dtype]).reshape(entry.shape)
        self._arrays[name] = array
        return array

    def verify(self) -> None:
        """StateError unless the bytes of every array are those that were written."""
        for name in self:
            self[name]

    def expect(self, name: str, dtype: np.dtype[Any] | type, shape: tuple[int, ...]) -> np.ndarray:
        """The array `name`, which must have this dtype and shape: StateError names both sides when it has not."""
        array = self[name]
        if array.dtype != np.dtype(dtype) or array.shape != shape:
            wanted = _DTYPE_NAMES.get(np.dtype(dtype), str(np.dtype(dtype)))
            raise StateError(
                f"{self.path.name}: array '{name}' is {_describe(self._entries[name].dtype, array.shape)}, this model "
                f"needs {_describe(wanted, shape)}. Start without --state."
            )
        return array

    def close(self) -> None:
        """Close the mapping. Arrays that somebody still holds stay readable; the mapping then goes with the last."""
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
    """Open a state file and check everything but the arrays' contents. StateError when anything is wrong with it."""
    path = Path(path)
    try:
        if not path.is_file():
            what = "no such file" if not path.exists() else "is a folder" if path.is_dir() else "is not a regular file"
            raise StateError(f"{path}: {what}. Start without --state.")
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
        raise StateError(f"{path.name} is not a state file of hybrid (magic {magic!r}). Start without --state.")
    if version != VERSION:
        raise StateError(
            f"{path.name}: state format {version}, this version reads {VERSION}. "
            f"{'Update hybrid' if version > VERSION else 'Start without --state'}."
        )
    if nbytes > min(_MAX_HEADER, len(view) - _PROLOGUE.size):
        raise _damaged(path, f"its header claims {nbytes} bytes, the file has {len(view)}")
    text = bytes(view[_PROLOGUE.size : _PROLOGUE.size + nbytes])
    if zlib.crc32(text) != crc:
        raise _damaged(path, "the checksum of its header differs")
    try:
        values = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise _damaged(path, "its header is not JSON") from error
    start = _padded(_PROLOGUE.size + nbytes)
    try:
        header = _parse(values)
        end = _check_layout(header.arrays)
    except _HeaderError as error:
        raise _damaged(path, str(error)) from None
    if start + end != len(view):
        problem = "is cut off" if start + end > len(view) else "has bytes that belong to nothing"
        raise StateError(
            f"{path.name} {problem}: {start + end} bytes expected, {len(view)} found. Start without --state."
        )
    return header, start


class _HeaderError(Exception):
    """What is wrong with a header, without the file's name."""


def _parse(values: object) -> StateHeader:
    top = _Fields(values, "header")
    model = _Fields(top.get("model", dict), "model")
    entries = []
    listed = top.get("arrays", list)
    if len(listed) > _MAX_ARRAYS:
        raise _HeaderError(f"its header lists {len(listed)} arrays, at most {_MAX_ARRAYS} are allowed")
    for i, item in enumerate(listed):
        array = _Fields(item, f"arrays[{i}]")
        shape = array.get("shape", list)
        if len(shape) > _MAX_DIMS or not all(type(n) is int and n >= 0 for n in shape):
            raise _HeaderError(f"arrays[{i}]: shape {shape!r:.80} is not a list of up to {_MAX_DIMS} sizes")
        entries.append(
            ArrayEntry(
                array.text("name"), array.text("dtype"), tuple(shape), array.count("offset"), array.count("nbytes"),
                array.count("crc32"),
            )
        )  # fmt: skip
    return StateHeader(
        fingerprint=model.text("fingerprint"),
        model=model.text("description"),
        n_tokens=top.count("n_tokens"),
        extra=top.get("extra", dict),
        cache=top.get("cache", list) if "cache" in top else (),
        library=top.text("library"),
        arrays=tuple(entries),
    )


class _Fields:
    """A JSON object read by a name and a kind."""

    def __init__(self, values: object, where: str):
        if not isinstance(values, dict):
            raise _HeaderError(f"its {where} is not a JSON object")
        self._values = values
        self._where = where

    def __contains__(self, name: str) -> bool:
        return name in self._values

    def get(self, name: str, kind: type) -> Any:
        value = self._values.get(name)
        if type(value) is not kind:
            found = "missing" if name not in self._values else f"{value!r:.40}"
            raise _HeaderError(f"{name} of its {self._where} is {found}, expected {kind.__name__}")
        return value

    def text(self, name: str) -> str:
        """Short and printable, since it may come to be part of an error's one line."""
        value: str = self.get(name, str)
        if len(value) > 500 or not value.isprintable():
            raise _HeaderError(f"{name} of its {self._where} is not a short printable text: {value[:40]!r}")
        return value

    def count(self, name: str) -> int:
        value: int = self.get(name, int)
        if value < 0:
            raise _HeaderError(f"{name} of its {self._where} is {value}, less than 0")
        return value


def _check_layout(entries: tuple[ArrayEntry, ...]) -> int:
    """The arrays must follow each other without a gap, so none can overlap or lie outside. Returns the data's size."""
    end = 0
    seen: set[str] = set()
    for entry in entries:
        if entry.name in seen:
            raise _HeaderError(f"array '{entry.name}' is listed twice")
        seen.add(entry.name)
        if entry.dtype not in _DTYPES:
            raise _HeaderError(f"array '{entry.name}' has dtype '{entry.dtype}', known: {', '.join(_DTYPES)}")
        expected = prod(entry.shape) * _DTYPES[entry.dtype].itemsize
        if entry.nbytes != expected:
            raise _HeaderError(f"array '{entry.name}' claims {entry.nbytes} bytes, its shape makes {expected}")
        if entry.offset != end:
            raise _HeaderError(f"array '{entry.name}' starts at byte {entry.offset}, expected {end}")
        end += _padded(entry.nbytes)
    return end


def _damaged(path: Path, what: str) -> StateError:
    return StateError(f"{path.name} is damaged: {what}. Start without --state.")


def _describe(dtype: str, shape: tuple[int, ...]) -> str:
    return f"{dtype} [{', '.join(map(str, shape))}]"


def _padded(nbytes: int) -> int:
    return -(-nbytes // ALIGNMENT) * ALIGNMENT


def _library() -> str:
    try:
        return f"hybrid-lm {metadata.version('hybrid-lm')}"
    except metadata.PackageNotFoundError:
        return "hybrid-lm"
