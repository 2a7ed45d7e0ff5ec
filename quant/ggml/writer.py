"""Writing GGUF version 3: streaming, in constant memory, and atomic (layout: see `reader`).

Pairs and tensor infos are collected first; the first `write` writes the header, and tensors follow in the order in
which they were declared. Everything goes to a temporary file beside the target, which replaces the target when it is
complete.
"""

import contextlib
import os
import shutil
import struct
from collections.abc import Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO, Self

import numpy as np

from .byte_sizes import size_text
from .errors import FormatError, HybridError, shown
from .file_ranges import FileRange
from .reader import DEFAULT_ALIGNMENT, MAGIC, MAX_DIMS, GGUFFile, TensorInfo
from .replacing import Replacement, check_target, failures_named
from .types import VALUE_CODE, ArrayOf, GGMLType, ValueType, row_nbytes

VERSION = 3
MAX_NAME = 63  # ggml.h, GGML_MAX_NAME less the terminating zero
# Bytes after which the disk is set to work, so that it writes while the rest is computed, not all at the end.
AHEAD = 1 << 28
_sync_data = getattr(os, "fdatasync", os.fsync)  # macOS has no fdatasync
_DTYPE_TO_KIND = {np.dtype(code): kind for kind, code in VALUE_CODE.items()}
_INFERRED = {
    bool: ValueType.BOOL,
    int: ValueType.UINT32,
    float: ValueType.FLOAT32,
    str: ValueType.STRING,
    bytes: ValueType.STRING,
}
Chunk = np.ndarray | bytes | bytearray | memoryview


class GGUFWriter:
    """Context manager that leaves a whole file at `path` or, after any exception (also KeyboardInterrupt), no trace.

    A full disk or any other failure to write is a HybridError that names the path and the reason.
    """

    def __init__(self, path: Path | str, arch: str | None) -> None:
        """`arch` is written first, as general.architecture; None leaves it to `add_raw`."""
        self._target = Replacement(path)
        self._given = Path(path)
        self._where = shown(path)
        self._pairs: dict[str, bytes] = {}
        self._infos: list[TensorInfo] = []
        self._names: set[str] = set()
        self._size = 0
        self._written = 0
        self._began = False
        self._data = 0  # offset of the data, once it is known
        self._by_name: dict[str, TensorInfo] = {}
        self._file: BinaryIO | None = None
        self._unsynced = 0
        self._disk: ThreadPoolExecutor | None = None
        self._syncing: Future[None] | None = None
        if arch is not None:
            self.add("general.architecture", arch, ValueType.STRING)

    def add(self, key: str, value: Any, kind: ValueType | ArrayOf | None = None) -> None:
        """Adds a pair, or replaces the value of a key already added. An empty sequence is skipped.

        Without `kind`: bool -> BOOL, int -> UINT32, float -> FLOAT32, str -> STRING; sequences of them -> arrays of
        BOOL, INT32, FLOAT32, STRING; numpy arrays by dtype. With a sequence, a scalar `kind` is the type of its
        elements. FormatError when the value does not fit its type.
        """
        assert not self._began, "metadata after the first tensor's data"
        value = value.tolist() if isinstance(value, np.generic) else value
        is_array = isinstance(value, (np.ndarray, Sequence)) and not isinstance(value, (str, bytes))
        if is_array and len(value) == 0:
            return
        if kind is None:
            kind = self._infer(key, value, is_array)
        elif is_array and isinstance(kind, ValueType):
            kind = ArrayOf(kind)
        try:
            if isinstance(kind, ArrayOf):
                body = struct.pack("<IIQ", ValueType.ARRAY, kind.element, len(value)) + _pack_all(value, kind.element)
            else:
                body = struct.pack("<I", kind) + _pack_all([value], kind)
            self._pairs[key] = _pack_string(key) + body
        except (struct.error, OverflowError, TypeError, ValueError):  # ValueError: strings with lone surrogates
            name = f"an array of {kind.element.name}" if isinstance(kind, ArrayOf) else kind.name
            raise FormatError(f"{shown(key)} = {shown(value)} cannot be stored as {name}.") from None

    def add_raw(self, key: str, source: GGUFFile) -> None:
        """Copies a pair byte for byte."""
        assert not self._began, "metadata after the first tensor's data"
        self._pairs[key] = source.pair(key)

    def drop(self, key: str) -> None:
        """Takes back a pair, if it was added."""
        assert not self._began, "metadata after the first tensor's data"
        self._pairs.pop(key, None)

    def add_all(self, other: "GGUFWriter") -> None:
        """Adds the pairs that were added to another writer."""
        assert not self._began, "metadata after the first tensor's data"
        self._pairs |= other._pairs

    def declare(self, name: str, shape: Sequence[int], kind: GGMLType) -> None:
        """Announces the next tensor; `shape` in numpy order. FormatError: its rows are not whole blocks of `kind`."""
        assert not self._began, "a tensor declared after the first tensor's data"
        shape = tuple(int(n) for n in shape)
        if name in self._names:
            raise FormatError(f"{self._where}: tensor {shown(name)} would be written twice.")
        if len(name.encode()) > MAX_NAME:
            raise FormatError(f"{shown(name)} has more than the {MAX_NAME} bytes that llama.cpp allows a name.")
        if not 1 <= len(shape) <= MAX_DIMS or min(shape) < 1:
            raise FormatError(
                f"{shown(name)} has shape {shape}; GGUF holds 1 to {MAX_DIMS} dimensions, none of size 0."
            )
        try:
            nbytes = int(np.prod(shape[:-1], dtype=object)) * row_nbytes(kind, shape[-1])
        except FormatError as error:
            raise FormatError(f"{shown(name)}: {error}. Use F16 for it.") from None
        self._names.add(name)
        self._infos.append(TensorInfo(name, shape, kind, self._size, nbytes))
        self._size += nbytes + -nbytes % DEFAULT_ALIGNMENT

    @property
    def path(self) -> Path:
        """The file that will be there; a symbolic link was followed."""
        return self._target.path

    @property
    def nbytes(self) -> int:
        """Size of the file with the pairs added and the tensors declared so far."""
        return len(self._header()) + self._size

    @property
    def paths(self) -> list[Path]:
        """The files that will be there."""
        return [self.path]

    @property
    def declared(self) -> Sequence[TensorInfo]:
        """The tensors declared so far; offsets from the beginning of the data."""
        return self._infos

    def write(self, name: str, data: Chunk | Iterable[Chunk]) -> None:
        """Writes the next declared tensor: an array or buffer of its exact size, or parts that add up to it."""
        self._begin()
        assert self._written < len(self._infos), f"{name} was not declared"
        info = self._infos[self._written]
        assert info.name == name, f"{name} written where {info.name} was declared"
        done = 0
        for part in [data] if isinstance(data, (np.ndarray, bytes, bytearray, memoryview)) else data:
            buffer = (
                np.ascontiguousarray(part).view(np.uint8).reshape(-1).data if isinstance(part, np.ndarray) else part
            )
            self._put(buffer)
            done += memoryview(buffer).nbytes
        assert done == info.nbytes, f"{name}: {done} bytes written, {info.nbytes} declared"
        self._put(bytes(-done % DEFAULT_ALIGNMENT))
        self._written += 1

    def begin(self, name: str) -> None:
        """Announces that `put` will write the next declared tensor. From now on `put` may also write any other one."""
        self._begin()
        info = self._infos[self._written]
        assert info.name == name, f"{name} written where {info.name} was declared"

    def takes(self, name: str) -> bool:
        """Whether `put` may be called for a declared tensor, on any thread."""
        return self._began

    def put(self, name: str, start: int, data: np.ndarray) -> None:
        """Writes bytes of a tensor from byte `start` on; data u8 in C order. On any thread, in any order."""
        assert self._file is not None and self._began
        rest, at = data.reshape(-1).data, self._data + self._by_name[name].offset + start
        with failures_named(self._given):
            while rest:
                n = os.pwrite(self._file.fileno(), rest, at)
                rest, at = rest[n:], at + n

    def end(self, name: str) -> None:
        """Announces that `put` wrote all of the tensor that was begun."""
        assert self._file is not None
        info = self._infos[self._written]
        assert info.name == name
        with failures_named(self._given):
            self._file.seek(self._data + info.offset + info.nbytes)
        self._unsynced += info.nbytes
        self._put(bytes(-info.nbytes % DEFAULT_ALIGNMENT))
        self._written += 1

    def lay_out(self) -> dict[str, FileRange]:
        """Sets the size of the unfinished file and returns the ranges of all tensors, for others to fill."""
        self._begin()
        assert self._file is not None and not self._written
        with failures_named(self._given):
            unfinished = self._target.shared(self._data + self._size)
        self._written = len(self._infos)
        return {t.name: FileRange(unfinished, self._given, self._data + t.offset, t.nbytes) for t in self._infos}

    def __enter__(self) -> Self:
        try:
            with failures_named(self._given):
                self._file = self._target.open(buffering=1 << 20)
            return self  # in here: an interrupt between this and the body of `with` would leave the file
        except BaseException:
            self.discard()
            raise

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        try:
            if error is None:
                self.complete()
                self.place()
        finally:
            self.discard()

    def check_target(self) -> None:
        """UsageError when the path is taken by something that is not a file."""
        check_target(self._given)

    def check_room(self, nbytes: int) -> None:
        """HybridError when the disk has less than `nbytes` free."""
        with failures_named(self._given):
            disk = shutil.disk_usage(self.path.parent)
        if disk.free < nbytes and disk.total:  # /proc and its like have no size: writing there raises the error
            raise HybridError(
                f"{self._where} needs {size_text(nbytes)} and its disk has {size_text(disk.free)} free. "
                "Make room or write elsewhere."
            )

    def complete(self) -> None:
        """Writes all of the temporary file to disk. Every declared tensor must have been written."""
        assert self._file is not None
        self._begin()
        missing = self._infos[self._written :]
        assert not missing, f"{len(missing)} tensors were declared and not written, {missing[0].name} first"
        with failures_named(self._given):
            self._file.flush()
            self._synced()
            self._target.complete()

    def close(self) -> None:
        """Closes the complete temporary file, so that a model's many parts are not all open."""
        self._target.close()

    def place(self, *, sync: bool = True) -> None:
        """Gives the complete file its name; `sync`: waits until the name is on disk."""
        with failures_named(self._given):
            self._target.place(sync=sync)

    @property
    def placed(self) -> bool:
        return self._target.placed

    def discard(self) -> None:
        """Removes the unfinished file; a complete one, which has its final name, stays."""
        try:
            with contextlib.suppress(OSError):
                self._synced()  # the disk's thread has the open file
        finally:
            self._target.discard()

    def _begin(self) -> None:
        if self._began:
            return
        header = self._header()
        self._data = len(header)
        self._by_name = {info.name: info for info in self._infos}
        self.check_room(len(header) + self._size)
        self._put(header)
        self._began = True  # last: from here on `put` may be called on any thread

    def _header(self) -> bytes:
        parts = [MAGIC, struct.pack("<IQQ", VERSION, len(self._infos), len(self._pairs)), *self._pairs.values()]
        for t in self._infos:
            dims = len(t.shape)
            parts.append(_pack_string(t.name))
            parts.append(struct.pack(f"<I{dims}QIQ", dims, *reversed(t.shape), t.type, t.offset))
        header = b"".join(parts)
        return header + bytes(-len(header) % DEFAULT_ALIGNMENT)

    def _infer(self, key: str, value: Any, is_array: bool) -> ValueType | ArrayOf:
        if isinstance(value, np.ndarray) and value.ndim == 1 and value.dtype in _DTYPE_TO_KIND:
            return ArrayOf(_DTYPE_TO_KIND[value.dtype])
        first = value[0] if is_array else value
        kind = _INFERRED.get(type(first.tolist() if isinstance(first, np.generic) else first))
        if kind is None:
            raise FormatError(f"{shown(key)} = {shown(value)} is of a kind that GGUF metadata cannot hold.")
        if not is_array:
            return kind
        if kind is ValueType.UINT32:
            # A list that mixes int and float is one of floats.
            return ArrayOf(ValueType.FLOAT32 if any(isinstance(v, float) for v in value) else ValueType.INT32)
        return ArrayOf(kind)

    def _put(self, data: Chunk) -> None:
        assert self._file is not None, "GGUFWriter is used outside of its `with`"
        with failures_named(self._given):
            self._unsynced += self._file.write(data)  # type: ignore[arg-type]  # numpy stubs: not a Buffer before 3.12
            if self._unsynced >= AHEAD and (self._syncing is None or self._syncing.done()):
                self._sync_ahead()

    def _sync_ahead(self) -> None:
        assert self._file is not None
        if self._syncing is not None:
            self._syncing.result()  # the error is raised once, to the first caller
        self._file.flush()
        self._disk = self._disk or ThreadPoolExecutor(1, thread_name_prefix="disk")
        self._syncing = self._disk.submit(_sync_data, self._file.fileno())
        self._unsynced = 0

    def _synced(self) -> None:
        """Waits for the disk; raises its error, if there was one."""
        syncing, self._syncing = self._syncing, None
        if self._disk is not None:
            self._disk.shutdown()
            self._disk = None
        if syncing is not None:
            syncing.result()


def _pack_string(text: str | bytes) -> bytes:
    raw = text if isinstance(text, bytes) else text.encode("utf-8")
    return struct.pack("<Q", len(raw)) + raw


def _pack_all(values: Any, kind: ValueType) -> bytes:
    if kind is ValueType.STRING:
        if not all(isinstance(v, (str, bytes)) for v in values):
            raise TypeError
        return b"".join(map(_pack_string, values))
    if kind is ValueType.BOOL and not all(isinstance(v, (bool, np.bool_)) for v in values):
        raise TypeError
    return struct.pack(f"<{len(values)}{VALUE_CODE[kind]}", *values)
