"""Makes GGUF files from GGUF files without changing weights: splits, joins, sets a value of the metadata."""

import difflib
import json
import os
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from .ggml.byte_sizes import size_text
from .ggml.errors import HybridError, Remedy, UsageError, shown
from .ggml.progress import Progress
from .ggml.reader import GGUFFile
from .ggml.split import PREFIX, SplitWriter, open_gguf
from .ggml.types import VALUE_CODE, ArrayOf, ValueType
from .ggml.writer import GGUFWriter

COPIED_NBYTES = 16 << 20  # bytes that are copied at a time
ALIGNMENT = "general.alignment"  # of the file; ours have the default


@dataclass(frozen=True)
class PartReport:
    """A file that was written, or would be."""

    path: Path
    n_tensors: int
    nbytes: int


@dataclass(frozen=True)
class SplitReport:
    """`parts` were made from `source`."""

    source: Path
    parts: list[PartReport]

    @property
    def nbytes(self) -> int:
        return sum(part.nbytes for part in self.parts)


def split(
    src: Path | str,
    dst: Path | str,
    *,
    max_bytes: int = 0,
    max_tensors: int = 0,
    first_without_tensors: bool = False,
    dry_run: bool = False,
    progress: Progress | None = None,
) -> SplitReport:
    """Splits a file into `dst`-00001-of-00003.gguf, ..., at the same places as llama.cpp's gguf-split.

    A part has at most `max_bytes` of tensors, or `max_tensors` of them (0: no limit); a larger tensor is a part of its
    own. first_without_tensors: the first part has only metadata. progress(tensor, done, total) in bytes of tensors. A
    split model can be split again. Raises UsageError (nothing to split, a target is a source), FormatError, HybridError
    (writing failed).
    """
    with open_gguf(src) as file:
        writer = SplitWriter(dst, None, max_bytes=max_bytes, max_tensors=max_tensors)
        _describe(file, writer)
        if first_without_tensors:
            writer.cut(empty=True)
        for t in file.tensors.values():
            writer.declare(t.name, t.shape, t.type)
        if writer.n_parts < 2:
            raise UsageError(
                f"{shown(file.path)} has {len(file.tensors)} tensors in {size_text(file.nbytes)} and fits into one "
                "part. Use it unchanged, or allow less in a part."
            )
        report = SplitReport(file.path, [PartReport(*part) for part in writer.made_of()])
        if not dry_run:
            _copy(file, writer, progress)
        return report


def merge(src: Path | str, dst: Path | str, *, progress: Progress | None = None) -> PartReport:
    """Joins the parts of a split model, given the first one. UsageError: it is not split."""
    with open_gguf(src) as file:
        if len(file.parts) < 2:
            raise UsageError(f"{shown(file.path)} is in one file already. Give the first part of a model.")
        return copy(file, dst, progress)


def copy(file: GGUFFile, dst: Path | str, progress: Progress | None = None) -> PartReport:
    """Copies a model into one file."""
    writer = GGUFWriter(dst, None)
    _describe(file, writer)
    for t in file.tensors.values():
        writer.declare(t.name, t.shape, t.type)
    _copy(file, writer, progress)
    return PartReport(Path(dst), len(file.tensors), writer.nbytes)


def _describe(file: GGUFFile, writer: GGUFWriter | SplitWriter) -> None:
    for key in file.metadata:
        if not key.startswith((PREFIX, ALIGNMENT)):
            writer.add_raw(key, file)


def _copy(file: GGUFFile, writer: GGUFWriter | SplitWriter, progress: Progress | None) -> None:
    for path in writer.paths:
        if path.exists() and any(path.samefile(part.path) for part in file.parts):
            raise UsageError(f"{shown(path)} is the source itself. Give another output path.")
    total, done = sum(t.nbytes for t in file.tensors.values()), 0
    with writer:
        for name in file.tensors:

            def counted(name: str = name) -> Iterator[np.ndarray]:
                nonlocal done
                for chunk in chunks_of(file, name):
                    yield chunk
                    done += chunk.size
                    if progress:
                        progress(name, done, total)

            writer.write(name, counted())


def chunks_of(file: GGUFFile, name: str) -> Iterator[np.ndarray]:
    """The bytes of a tensor, u8, in bounded pieces; used pieces leave the page cache."""
    flat = file.raw(name).reshape(-1)
    for start in range(0, flat.size, COPIED_NBYTES):
        stop = min(start + COPIED_NBYTES, flat.size)
        yield flat[start:stop]
        file.release(name, start, stop)


@dataclass(frozen=True)
class Change:
    """A value of the metadata before and after. `in_place`: only its bytes change; else the file is written anew."""

    path: Path
    key: str
    type: str
    old: Any
    new: Any
    in_place: bool


def set_value(
    path: Path | str, key: str, text: str, *, dry_run: bool = False, progress: Progress | None = None
) -> Change:
    """Sets an existing key of a file (or of one part) to the value of `text`, in the key's type.

    Numbers and bools are overwritten in place; for a string or an array a new file replaces the old one when complete.
    UsageError: no such key, a value of another type, or a key that describes the file's layout.
    """
    with GGUFFile.open(path) as file:
        entry = file.metadata.entries.get(key)
        if entry is None:
            near = ", ".join(difflib.get_close_matches(key, file.metadata, n=3))
            raise UsageError(
                f"{shown(path)} has no key {shown(key)}{near and f'; near it are {near}'}.",
                remedy=Remedy.LIST_KEYS,
                value=path,
            )
        if key.startswith((PREFIX, ALIGNMENT)):
            raise UsageError(f"{shown(key)} says how the file is laid out and cannot be set alone.")
        value = parsed(text, entry.kind, key)
        in_place = isinstance(entry.kind, ValueType) and entry.kind is not ValueType.STRING
        old = file.metadata[key]
        change = Change(file.path, key, type_name(entry.kind), _plain(old), value, in_place)
        if dry_run:
            return change
        if in_place:
            assert isinstance(entry.kind, ValueType)
            _overwrite(file.path, entry.value, struct.pack("<" + VALUE_CODE[entry.kind], value))
            return change
        writer = GGUFWriter(file.path, None)
        for other in file.metadata:
            if other == key:
                writer.add(key, value, entry.kind)
            elif other != ALIGNMENT:
                writer.add_raw(other, file)
        for t in file.tensors.values():
            writer.declare(t.name, t.shape, t.type)
        total, done = sum(t.nbytes for t in file.tensors.values()), 0
        with writer:
            for t in file.tensors.values():
                writer.write(t.name, chunks_of(file, t.name))
                done += t.nbytes
                if progress:
                    progress(t.name, done, total)
        return change


def parsed(text: str, kind: ValueType | ArrayOf, key: str) -> Any:
    """The value of type `kind` that a text describes; arrays as JSON. UsageError: another type."""
    wrong = UsageError(f"{shown(key)} is {type_name(kind)}: {shown(text, 60)} is not such a value.{_example(kind)}")
    try:
        value = json.loads(text) if isinstance(kind, ArrayOf) else _scalar(text, kind)
        if isinstance(kind, ArrayOf) and (not isinstance(value, list) or not value):
            raise wrong
        for one in value if isinstance(kind, ArrayOf) else [value]:
            _check(one, kind.element if isinstance(kind, ArrayOf) else kind)
    except (ValueError, TypeError, OverflowError, RecursionError, struct.error):
        raise wrong from None
    return value


def _scalar(text: str, kind: ValueType) -> Any:
    if kind is ValueType.STRING:
        return text
    if kind is ValueType.BOOL:
        return {"true": True, "false": False}.get(text.lower(), text)
    return float(text) if kind in (ValueType.FLOAT32, ValueType.FLOAT64) else int(text, 0)


def _check(value: Any, kind: ValueType) -> None:
    """Raises TypeError, struct.error, ... unless the value has this type and range."""
    if kind is ValueType.STRING:
        if not isinstance(value, str):
            raise TypeError
        value.encode()
    elif (kind is ValueType.BOOL) is not isinstance(value, bool):
        raise TypeError
    else:
        struct.pack("<" + VALUE_CODE[kind], value)


def _example(kind: ValueType | ArrayOf) -> str:
    if isinstance(kind, ArrayOf):
        return " Give it as JSON, like [1, 2]."
    return " Give true or false." if kind is ValueType.BOOL else ""


def type_name(kind: ValueType | ArrayOf) -> str:
    """UINT32, STRING, ARRAY of FLOAT32, ..."""
    return f"ARRAY of {kind.element.name}" if isinstance(kind, ArrayOf) else kind.name


def _plain(value: Any) -> Any:
    return value.tolist() if hasattr(value, "tolist") else value


def _overwrite(path: Path, offset: int, data: bytes) -> None:
    """Overwrites at most eight bytes in one write, without copying the file."""
    try:
        with path.open("r+b", buffering=0) as f:
            os.pwrite(f.fileno(), data, offset)
            os.fsync(f.fileno())
    except OSError as error:
        raise HybridError(f"{shown(path)} cannot be written: {error.strerror}. Copy it elsewhere first.") from None
