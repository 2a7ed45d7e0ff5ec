"""Layout of the new file before any weight is written: metadata, tensors in order, parts, and so its size."""

from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from .ggml.errors import UsageError, shown
from .ggml.split import SplitWriter
from .ggml.types import QUANTIZATION_VERSION, FileType, ValueType
from .imatrix import Imatrix
from .planning import PlannedTensor, plan_source, target_name, target_of
from .policy import Options
from .source import DROPPED, GGUFSource, Source


def file_nbytes(
    src: Path | str | Source,
    target: FileType | str,
    *,
    options: Options | None = None,
    imatrix: Imatrix | None = None,
    metadata: Mapping[str, tuple[Any, ValueType]] | None = None,
    allow_requantize: bool = False,
    keep_split: bool = False,
    split_max_size: int = 0,
) -> int:
    """Bytes of the files that `quantize` would write. Raises the errors that it raises before writing."""
    target_name(target)
    with ExitStack() as stack:
        source: Source = stack.enter_context(GGUFSource(src)) if isinstance(src, str | Path) else src
        kind, options = target_of(source, target, options)
        writer, _ = prepared(
            source,
            Path("unwritten"),
            kind,
            options,
            imatrix,
            metadata or {},
            allow_requantize,
            keep_split,
            split_max_size,
        )
        return writer.nbytes


def prepared(
    source: Source,
    dst: Path,
    kind: FileType,
    options: Options | None,
    imatrix: Imatrix | None,
    metadata: Mapping[str, tuple[Any, ValueType]],
    allow_requantize: bool,
    keep_split: bool,
    split_max_size: int,
) -> tuple[SplitWriter, list[PlannedTensor]]:
    """A writer with all metadata and tensors, and the tensors in the order of the file."""
    planned = plan_source(source, kind, options, imatrix, allow_requantize)
    writer = SplitWriter(dst, None, max_bytes=split_max_size)
    _describe(source, writer, None if options and options.copy else kind, metadata, imatrix)
    return writer, _declare(source, writer, planned, keep_split)


def _declare(
    source: Source, writer: SplitWriter, planned: list[PlannedTensor], keep_split: bool
) -> list[PlannedTensor]:
    """Declares all tensors; returns them in the order of the file, or with `keep_split` of the source's files."""
    by_name = {t.name: t for t in planned}
    groups = [[by_name[name] for name in part] for part in source.parts] if keep_split else [planned]
    for group in groups:
        writer.cut()
        for t in group:
            writer.declare(t.name, t.shape, t.target)
    return [t for group in groups for t in group]


def _describe(
    source: Source,
    writer: SplitWriter,
    kind: FileType | None,
    metadata: Mapping[str, tuple[Any, ValueType]],
    imatrix: Imatrix | None,
) -> None:
    source.describe(writer)
    writer.add("general.quantization_version", QUANTIZATION_VERSION, ValueType.UINT32)
    if kind is not None:
        writer.add("general.file_type", int(kind), ValueType.UINT32)
    for key, (value, value_type) in metadata.items():
        _check_key(source, key, value)
        writer.add(key, value, value_type)
    if imatrix:
        writer.add("quantize.imatrix.file", str(imatrix.path.name if imatrix.path else ""), ValueType.STRING)
        if imatrix.datasets:
            writer.add("quantize.imatrix.dataset", imatrix.datasets[0], ValueType.STRING)
        writer.add("quantize.imatrix.entries_count", len(imatrix.entries), ValueType.UINT32)
        writer.add("quantize.imatrix.chunks_count", imatrix.chunk_count, ValueType.UINT32)


def _check_key(source: Source, key: str, value: object) -> None:
    """UsageError for a key that would make the file unreadable: layout keys, or values of another type than before."""
    if key.startswith(DROPPED):
        raise UsageError(f"{shown(key)} cannot be set: it says how the file is laid out. Leave it out.")
    before = source.metadata.get(key)
    kinds = {bool: "a truth value", int: "an integer", float: "a number", str: "a string"}
    before_kind, given_kind = kinds.get(type(before), "a list"), kinds.get(type(value), "a list")
    if before is not None and before_kind != given_kind:
        hint = f"Give it as {before_kind}." if type(before) in kinds else "Leave it out."
        raise UsageError(f"{shown(key)} is {before_kind} in {shown(source.path)}, not {given_kind}. {hint}")
