"""Models in several GGUF files, as llama.cpp's gguf-split makes and reads them: NAME-00001-of-00003.gguf, ...

    split.no             UINT16   number of the part, from 0
    split.tensors.count  INT32    tensors in all parts together
    split.count          UINT16   number of parts; 0 and 1: the file is whole

The first part has all other metadata. Each tensor is in one part, whole.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np

from .errors import FormatError, UsageError, shown
from .file_ranges import FileRange
from .reader import DEFAULT_ALIGNMENT, GGUFFile
from .types import ArrayOf, GGMLType, ValueType
from .writer import Chunk, GGUFWriter

PREFIX = "split."
NO, COUNT, TENSORS = (PREFIX + name for name in ("no", "count", "tensors.count"))
MAX_PARTS = (1 << 16) - 1
_AGAIN = "Not all of them are of one model; copy them again."
_PART = re.compile(r"(.*)-(\d{5})-of-(\d{5})\.gguf")


def part_path(path: Path, i: int, count: int) -> Path:
    """The path of part i (from 0) of `count`, for a model called `path`: with or without .gguf, or one of its parts."""
    return path.with_name(f"{stem_of(path)}-{i + 1:05}-of-{count:05}.gguf")


def stem_of(path: Path) -> str:
    """The name of a file or of all its parts, without the number of the part and .gguf."""
    match = _PART.fullmatch(path.name)
    return match[1] if match else path.name.removesuffix(".gguf")


def is_later_part(path: Path) -> bool:
    """Whether a file is named as a part other than the first."""
    match = _PART.fullmatch(path.name)
    return match is not None and int(match[2]) > 1


class SplitFile(GGUFFile):
    """All parts of a model as one file. Tensors keep the order of the parts; offsets are within their own files;
    `nbytes` counts all files."""

    def __init__(self, files: Sequence[GGUFFile]) -> None:
        first = files[0]
        self._files = files
        self.path, self.version, self.metadata = first.path, first.version, first.metadata
        self.alignment, self.data_offset = first.alignment, first.data_offset
        self.nbytes = sum(file.nbytes for file in files)
        self._where = shown(first.path)
        self._home: dict[str, GGUFFile] = {}
        for file in files:
            for name in file.tensors:
                if name in self._home:
                    raise FormatError(f"{shown(file.path)}: tensor {shown(name)} is also in another part. {_AGAIN}")
                self._home[name] = file
        self.tensors = {name: file.tensors[name] for name, file in self._home.items()}
        stated = first.get(TENSORS, len(self.tensors))
        if stated != len(self.tensors):
            raise FormatError(
                f"{self._where}: its {len(files)} parts hold {len(self.tensors)} tensors, {TENSORS} says "
                f"{shown(stated)}. {_AGAIN}"
            )

    @property
    def parts(self) -> Sequence[GGUFFile]:
        return self._files

    def pair(self, key: str) -> bytes:
        return self._files[0].pair(key)

    def raw(self, name: str) -> np.ndarray:
        return self._home[self.info(name).name].raw(name)

    def release(self, name: str, start: int = 0, stop: int | None = None) -> None:
        self._home[name].release(name, start, stop)

    def expect_parts(self, name: str) -> None:
        self._home[name].expect_parts(name)

    def release_all(self) -> None:
        for file in self._files:
            file.release_all()

    def close(self) -> None:
        for file in self._files:
            file.close()


def open_gguf(path: Path | str) -> GGUFFile:
    """A GGUF file, or all parts of a model whose first part is `path`.

    UsageError: not the first part, or a part is missing; FormatError: the parts do not belong together; otherwise as
    `GGUFFile.open`.
    """
    first = GGUFFile.open(path)
    try:
        count = _number(first, COUNT)
        return first if count < 2 else _joined(first, count)
    except BaseException:
        first.close()
        raise


def _joined(first: GGUFFile, count: int) -> SplitFile:
    path, no = first.path, _number(first, NO)
    expected = part_path(path, 0, count)
    if no != 0:
        raise UsageError(f"{shown(path)} is part {no + 1} of {count} of a model. Give the first, {shown(expected)}.")
    if path.name != expected.name:
        raise UsageError(
            f"{shown(path)} is one of {count} parts of a model. Give the first, named NAME-00001-of-{count:05}.gguf, "
            "with the others beside it."
        )
    files = [first]
    try:
        for i in range(1, count):
            files.append(_part(path, i, count))
        return SplitFile(files)
    except BaseException:
        for file in files[1:]:
            file.close()
        raise


def _part(first: Path, i: int, count: int) -> GGUFFile:
    path = part_path(first, i, count)
    if not path.exists():
        raise UsageError(
            f"{shown(path)} is missing: {shown(first.name)} is the first of {count} parts of a model. "
            "Put it beside the others."
        )
    file = GGUFFile.open(path)
    no, says = _number(file, NO), _number(file, COUNT)
    if (no, says) != (i, count):
        file.close()
        claim = f"part {no + 1} of {says}" if says else "no part of anything"
        raise FormatError(f"{shown(path)} is not part {i + 1} of {count}: its metadata say {claim}. Copy it again.")
    return file


def _number(file: GGUFFile, key: str) -> int:
    value = file.get(key, 0)
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= MAX_PARTS:
        raise FormatError(f"{shown(file.path)}: {key} is {shown(value)}, no number of parts. Copy it again.")
    return value


class SplitWriter:
    """A `GGUFWriter` for several files. A tensor that would exceed `max_bytes` of tensors or `max_tensors` in a part
    begins the next part (0: no limit), as does the tensor after `cut`. A single part is an ordinary file.

    Parts get their names when all are complete; an exception leaves no parts.
    """

    def __init__(self, path: Path | str, arch: str | None, *, max_bytes: int = 0, max_tensors: int = 0) -> None:
        self._path = Path(path)
        self._whole = GGUFWriter(path, arch)  # holds all pairs and declared tensors; writes nothing
        self._max_bytes, self._max_tensors = max_bytes, max_tensors
        self._starts = [0]  # of the parts, in tensors
        self._size = 0  # of the last part's tensors
        self._writers: list[GGUFWriter] = []
        self._home: dict[str, int] = {}
        self._at = -1
        self._laid_out = False

    def add(self, key: str, value: Any, kind: ValueType | ArrayOf | None = None) -> None:
        self._whole.add(key, value, kind)

    def add_raw(self, key: str, source: GGUFFile) -> None:
        self._whole.add_raw(key, source)

    def drop(self, key: str) -> None:
        self._whole.drop(key)

    def cut(self, *, empty: bool = False) -> None:
        """Begins a part with the next tensor; `empty`: even if the current part is empty."""
        n = len(self._whole.declared)
        if n > self._starts[-1] or empty:
            self._starts.append(n)
            self._size = 0

    def declare(self, name: str, shape: Sequence[int], kind: GGMLType) -> None:
        self._whole.declare(name, shape, kind)
        info, n = self._whole.declared[-1], len(self._whole.declared) - 1 - self._starts[-1]
        nbytes = info.nbytes + -info.nbytes % DEFAULT_ALIGNMENT
        if n and (0 < self._max_bytes < self._size + nbytes or 0 < self._max_tensors <= n):
            self._starts.append(len(self._whole.declared) - 1)
            self._size = 0
        self._size += nbytes

    @property
    def n_parts(self) -> int:
        return len(self._starts) - (self._starts[-1] == len(self._whole.declared) > 0)

    def made_of(self) -> Iterator[tuple[Path, int, int]]:
        """Path, number of tensors and size of every file."""
        for path, writer in zip(self.paths, self._made(), strict=True):
            yield path, len(writer.declared), writer.nbytes

    @property
    def paths(self) -> list[Path]:
        count = self.n_parts
        if count > MAX_PARTS:
            raise UsageError(
                f"{shown(self._path)} would have {count} parts, at most {MAX_PARTS} are allowed. Allow larger parts."
            )
        return [part_path(self._path, i, count) for i in range(count)] if count > 1 else [self._path]

    @property
    def nbytes(self) -> int:
        """Size of all files."""
        return sum(writer.nbytes for writer in self._made())

    def write(self, name: str, data: Chunk | Iterable[Chunk]) -> None:
        """As `GGUFWriter.write`: in the order in which tensors were declared."""
        i = self._home[name]
        if i != self._at:
            self._complete(i)
        self._writers[i].write(name, data)

    def begin(self, name: str) -> None:
        i = self._home[name]
        if i != self._at:
            self._complete(i)
        self._writers[i].begin(name)

    def takes(self, name: str) -> bool:
        """As `GGUFWriter.takes`: once the part of that tensor has been started."""
        i = self._home[name]
        return i == self._at and self._writers[i].takes(name)

    def put(self, name: str, start: int, data: np.ndarray) -> None:
        self._writers[self._home[name]].put(name, start, data)

    def end(self, name: str) -> None:
        self._writers[self._home[name]].end(name)

    def lay_out(self) -> dict[str, FileRange]:
        """Sets the sizes of the unfinished files and returns the ranges of all tensors, for others to fill."""
        places: dict[str, FileRange] = {}
        self._laid_out = True
        for writer in self._writers:
            writer.__enter__()
            places |= writer.lay_out()
        return places

    def __enter__(self) -> Self:
        self._writers = self._made()
        self._home = {info.name: i for i, writer in enumerate(self._writers) for info in writer.declared}
        for writer in self._writers:
            writer.check_target()
        self._writers[0].check_room(sum(writer.nbytes for writer in self._writers))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        whole = False
        try:
            if error is None:
                self._complete(len(self._writers))
                # as close together as possible: from here on the old files are gone
                for i, writer in enumerate(self._writers, 1):
                    writer.place(sync=i == len(self._writers))
                whole = True
        finally:
            for writer in self._writers:
                if writer.placed and not whole and len(self._writers) > 1:
                    writer.path.unlink(missing_ok=True)
                writer.discard()

    def _complete(self, stop: int) -> None:
        """Completes the parts before number `stop`, and starts that one; only one file is open at a time."""
        if self._laid_out:
            for writer in self._writers:
                writer.complete()
            return
        if self._at >= 0:
            self._writers[self._at].complete()
            if len(self._writers) > 1:
                self._writers[self._at].close()
        for i in range(self._at + 1, stop):
            self._writers[i].__enter__()
            self._writers[i].complete()
            self._writers[i].close()
        if stop < len(self._writers):
            self._writers[stop].__enter__()
        self._at = stop

    def _made(self) -> list[GGUFWriter]:
        """A writer for every part, with all that it will contain."""
        declared, paths = self._whole.declared, self.paths
        if len(paths) == 1:
            return [self._whole]
        writers = []
        for i, path in enumerate(paths):
            writer = GGUFWriter(path, None)
            if i == 0:
                writer.add_all(self._whole)
            writer.add(NO, i, ValueType.UINT16)
            writer.add(TENSORS, len(declared), ValueType.INT32)
            writer.add(COUNT, len(paths), ValueType.UINT16)
            for info in declared[self._starts[i] : self._starts[i + 1] if i + 1 < len(paths) else None]:
                writer.declare(info.name, info.shape, info.type)
            writers.append(writer)
        return writers
