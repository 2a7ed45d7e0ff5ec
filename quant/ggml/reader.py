"""Reads GGUF: the file is mapped, and its header is checked before anything in it is used.

    header      magic "GGUF", u32 version (2 or 3), u64 number of tensors, u64 number of key-value pairs
    pairs       string key, u32 value type, value
    infos       per tensor: string name, u32 n_dims, u64 dims (fastest first), u32 type, u64 offset into the data
    data        begins at the next multiple of the alignment (general.alignment, or 32), as does every tensor

A string is a u64 length and that many bytes of UTF-8; an array a u32 value type, a u64 count, the values. Everything is
little endian. Specification: ggml docs/gguf.md.
"""

import contextlib
import itertools
import math
import mmap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np

from . import formats
from .errors import FormatError, UnsupportedError, UsageError, shown
from .metadata import Cursor, Metadata
from .sources import check_source
from .types import OTHER_TYPE_NAMES, TRAITS, ArrayOf, GGMLType, ValueType, other_maker, row_nbytes

MAGIC = b"GGUF"
DEFAULT_ALIGNMENT = 32
MAX_DIMS = 4
MAX_TENSORS = 1 << 19  # of one file; the largest checkpoints have some 210 000, the experts of each layer one by one
_REQUIRED = object()


@dataclass(frozen=True)
class TensorInfo:
    """One tensor: `shape` in numpy order (the last dimension is ne0, a row), `offset` in bytes from the file start."""

    name: str
    shape: tuple[int, ...]
    type: GGMLType
    offset: int
    nbytes: int


class GGUFFile:
    """An open, mapped, structurally valid GGUF file. `open` raises FormatError, UnsupportedError or UsageError."""

    path: Path
    version: int
    alignment: int
    data_offset: int
    nbytes: int
    metadata: Metadata
    tensors: dict[str, TensorInfo]

    def __init__(self, path: Path, data: mmap.mmap) -> None:
        self.path = path
        self.nbytes = len(data)
        self._where = shown(path)
        self._map = data
        self._bytes: np.ndarray | None = np.frombuffer(data, dtype=np.uint8)
        cursor = Cursor(data, self._where)
        self.version = self._parse_version(cursor)
        # The smallest tensor info has an empty name and one dimension, the smallest pair an empty key and one byte.
        n_tensors = cursor.count(8 + 4 + 8 + 4 + 8, "tensors")
        if n_tensors > MAX_TENSORS:
            raise FormatError(
                f"{self._where} says that it has {n_tensors} tensors, expected at most {MAX_TENSORS}. Copy it again."
            )
        n_pairs = cursor.count(8 + 4 + 1, "key-value pairs")
        self.metadata = Metadata(data, self._where)
        for i in range(n_pairs):
            self.metadata.append(*cursor.entry(i))
        self.alignment = self._parse_alignment(cursor)
        relative = [self._parse_tensor(cursor, i) for i in range(n_tensors)]
        self.data_offset = -(-cursor.pos // self.alignment) * self.alignment
        self.tensors = self._place(cursor, relative)

    @classmethod
    def open(cls, path: Path | str) -> Self:
        """Maps `path` and checks its structure, but not the values of tensors."""
        path = Path(path)
        try:
            check_source(path, "a GGUF file")
            with path.open("rb") as f:
                data = mmap.mmap(f.fileno(), 0, access=mmap.ACCESS_READ)
        except FileNotFoundError:
            raise UsageError(f"{shown(path)} does not exist. Give the path of a GGUF file.") from None
        except OSError as error:
            raise UsageError(f"{shown(path)} cannot be read: {error.strerror}. Give the path of a GGUF file.") from None
        except ValueError:  # mmap of nothing
            raise FormatError(f"{shown(path)} is empty, not a GGUF file. Copy it again.") from None
        try:
            return cls(path, data)
        except BaseException:
            # The traceback still holds views of the map, so it is unmapped when they go, not by close().
            del data
            raise

    @property
    def value_types(self) -> Mapping[str, ValueType | ArrayOf]:
        """The GGUF type of each key's value."""
        return {key: entry.kind for key, entry in self.metadata.entries.items()}

    @property
    def parts(self) -> "Sequence[GGUFFile]":
        """The files that it consists of; see `split`."""
        return (self,)

    def get(self, key: str, default: Any = _REQUIRED) -> Any:
        """The value of `key`, or `default`. FormatError: the key is absent and there is no default."""
        if key in self.metadata:
            return self.metadata[key]
        if default is _REQUIRED:
            raise FormatError(f"{self._where} has no key {shown(key)}, which it needs. Convert the model again.")
        return default

    def pair(self, key: str) -> bytes:
        """The bytes of one key-value pair in the file."""
        entry = self.metadata.entries[key]
        return self._map[entry.start : entry.end]

    def info(self, name: str) -> TensorInfo:
        """The tensor of this name. FormatError: no such tensor."""
        try:
            return self.tensors[name]
        except KeyError:
            raise FormatError(f"{self._where} has no tensor {shown(name)}. Convert the model again.") from None

    @property
    def mapped(self) -> np.ndarray:
        """All bytes of this file, u8, mapped; for a split model, ask each of its `parts`."""
        assert self._bytes is not None, "the file is closed"
        return self._bytes

    def raw(self, name: str) -> np.ndarray:
        """The stored bytes, u8 [*shape[:-1], row_nbytes]: a read-only view into the mapped file."""
        t = self.info(name)
        assert self._bytes is not None, "the file is closed"
        flat = self._bytes[t.offset : t.offset + t.nbytes]
        return flat.reshape(*t.shape[:-1], row_nbytes(t.type, t.shape[-1]))

    def f32(self, name: str) -> np.ndarray:
        """The values, f32 in the tensor's shape: a decoded copy, or a read-only view of F32 data."""
        return formats.decode(self.info(name).type, self.raw(name))

    def release(self, name: str, start: int = 0, stop: int | None = None) -> None:
        """Tells the system that bytes [start, stop) of a tensor will not be read again soon.

        They no longer count as this process's memory, so that a pass over a file stays small; they can still be read.
        """
        t = self.info(name)
        if hasattr(mmap, "MADV_DONTNEED"):
            # Whole pages, also those shared with a neighbour: at worst it reads one again.
            first = (t.offset + start) // mmap.PAGESIZE * mmap.PAGESIZE
            last = t.offset + (t.nbytes if stop is None else stop)
            if last > first:
                self._map.madvise(mmap.MADV_DONTNEED, first, last - first)

    def expect_parts(self, name: str) -> None:
        """Tells the system that a tensor is read in parts: a missing page is read alone, not with megabytes around."""
        t = self.info(name)
        if hasattr(mmap, "MADV_RANDOM"):
            first = -(-t.offset // mmap.PAGESIZE) * mmap.PAGESIZE
            last = (t.offset + t.nbytes) // mmap.PAGESIZE * mmap.PAGESIZE
            if last > first:
                self._map.madvise(mmap.MADV_RANDOM, first, last - first)

    def release_all(self) -> None:
        """`release` of the whole file, for a model that is no longer used while arrays still view it."""
        if hasattr(mmap, "MADV_DONTNEED") and not self._map.closed:
            self._map.madvise(mmap.MADV_DONTNEED)

    def close(self) -> None:
        """Unmaps the file, at the latest when the last array that views it is gone."""
        self._bytes = None
        with contextlib.suppress(BufferError):
            self._map.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def _parse_version(self, cursor: Cursor) -> int:
        magic = bytes(cursor.data[:4])
        if magic != MAGIC:
            raise FormatError(f"{self._where} is not a GGUF file: it begins with {magic!r}, not {MAGIC!r}.")
        cursor.pos = 4
        version = cursor.u32("the version")
        if version and version & 0xFFFF == 0:
            raise UnsupportedError(f"{self._where} is a big-endian GGUF file. Only little-endian ones are read.")
        if version not in (2, 3):
            raise UnsupportedError(f"{self._where} is GGUF version {version}; versions 2 and 3 are read.")
        return version

    def _parse_alignment(self, cursor: Cursor) -> int:
        entry = self.metadata.entries.get("general.alignment")
        if entry is None:
            return DEFAULT_ALIGNMENT
        if entry.kind is not ValueType.UINT32:
            raise cursor.damaged("general.alignment is not a UINT32")
        alignment: int = self.metadata["general.alignment"]
        if alignment < 1 or alignment & (alignment - 1):
            raise cursor.damaged(f"general.alignment is {alignment}, not a power of two")
        return alignment

    def _parse_tensor(self, cursor: Cursor, index: int) -> TensorInfo:
        """Info number `index`, its offset still relative to the data section."""
        name = cursor.name(f"the name of tensor {index}")
        what = f"the info of tensor {shown(name)}"
        n_dims = cursor.u32(what)
        if not 1 <= n_dims <= MAX_DIMS:
            raise cursor.damaged(f"tensor {shown(name)} has {n_dims} dimensions, not 1 to {MAX_DIMS}")
        shape = tuple(cursor.u64(what) for _ in range(n_dims))[::-1]
        number = cursor.u32(what)
        offset = cursor.u64(what)
        dims = "x".join(map(str, shape))
        if 0 in shape or math.prod(shape) >= 1 << 63:
            raise cursor.damaged(f"tensor {shown(name)} has the impossible shape {dims}")
        if number not in TRAITS:
            if maker := other_maker(number):
                raise UnsupportedError(
                    f"{self._where}: tensor {shown(name)} has type {number} of {maker}, which llama.cpp does not have. "
                    "Use another file of this model."
                )
            if number not in OTHER_TYPE_NAMES:
                raise cursor.damaged(f"tensor {shown(name)} has type {number}, which ggml does not have")
            raise UnsupportedError(
                f"{self._where}: tensor {shown(name)} is {OTHER_TYPE_NAMES[number]}, which is not a type for "
                "weights. Convert the model again."
            )
        kind = GGMLType(number)
        if shape[-1] % TRAITS[kind].block:
            raise cursor.damaged(
                f"tensor {shown(name)} has rows of {shape[-1]} values, "
                f"not a multiple of {TRAITS[kind].block} ({kind.name})"
            )
        return TensorInfo(name, shape, kind, offset, math.prod(shape[:-1]) * row_nbytes(kind, shape[-1]))

    def _place(self, cursor: Cursor, infos: list[TensorInfo]) -> dict[str, TensorInfo]:
        """Offsets from the start of the file, after checks that each tensor is aligned, inside, disjoint and unique."""
        tensors: dict[str, TensorInfo] = {}
        # Where the data ends in a file without holes: a tensor within that bound is missing, one beyond is misplaced.
        bound = sum(-(-t.nbytes // self.alignment) * self.alignment for t in infos)
        for t in infos:
            if t.name in tensors:
                raise cursor.damaged(f"tensor {shown(t.name)} occurs twice")
            if t.offset % self.alignment:
                raise cursor.damaged(
                    f"tensor {shown(t.name)} has offset {t.offset}, not a multiple of {self.alignment}"
                )
            if t.offset + t.nbytes > bound and self.data_offset + t.offset + t.nbytes > self.nbytes:
                raise cursor.damaged(f"tensor {shown(t.name)} has offset {t.offset}, which is outside of the data")
            tensors[t.name] = TensorInfo(t.name, t.shape, t.type, self.data_offset + t.offset, t.nbytes)
        by_offset = sorted(tensors.values(), key=lambda t: t.offset)
        for t, following in itertools.pairwise(by_offset):
            if t.offset + t.nbytes > following.offset:
                raise cursor.damaged(f"tensors {shown(t.name)} and {shown(following.name)} overlap")
        for t in by_offset:
            if t.offset + t.nbytes > self.nbytes:
                raise FormatError(
                    f"{self._where} is cut off: {shown(t.name)} ends at byte {t.offset + t.nbytes}, "
                    f"the file has {self.nbytes}. Copy it again."
                )
        return tensors
