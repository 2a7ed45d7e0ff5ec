"""Where the weights to quantize come from: a GGUF file, all parts of one, or whatever else gives rows of tensors."""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol, Self

import numpy as np

from .ggml.errors import FormatError, UsageError, shown
from .ggml.reader import GGUFFile, TensorInfo
from .ggml.types import row_nbytes
from .ggml.writer import GGUFWriter

_PART = re.compile(r"(.*)-(\d{5})-of-(\d{5})\.gguf$")
# Keys that would be wrong in a new file.
DROPPED = ("split.", "general.alignment")


@dataclass(frozen=True)
class Piece:
    """`rows` rows of a tensor. read() gives their bytes, u8 flat, in the tensor's type, on any thread, once; done()
    says that they are not needed any more."""

    rows: int
    read: Callable[[], np.ndarray]
    done: Callable[[], None]


class Source(Protocol):
    """`tensors` in any order. `parts`: their names, file by file. `nbytes`: of all files."""

    @property
    def path(self) -> Path: ...
    @property
    def nbytes(self) -> int: ...
    @property
    def metadata(self) -> Mapping[str, Any]: ...
    @property
    def tensors(self) -> Mapping[str, TensorInfo]: ...
    @property
    def parts(self) -> list[list[str]]: ...

    def describe(self, writer: GGUFWriter) -> None:
        """Gives the writer all metadata but that of `DROPPED`."""

    def pieces(self, name: str, rows: int) -> Iterator[Piece]:
        """All rows of a tensor in order, at most about `rows` in a piece."""

    def is_read(self, path: Path) -> bool:
        """Whether `path` is one of the files that are read."""


class GGUFSource:
    """A GGUF file, or all parts of one when the first is given. Close it, or use it in a `with`."""

    def __init__(self, path: Path | str) -> None:
        self.path = Path(path)
        self._files = [GGUFFile.open(self.path)]
        try:
            for part in self._others():
                self._files.append(GGUFFile.open(part))
            self.tensors = self._joined()
        except BaseException:
            self.close()
            raise

    @property
    def metadata(self) -> Mapping[str, Any]:
        return self._files[0].metadata

    @property
    def nbytes(self) -> int:
        return sum(file.nbytes for file in self._files)

    @property
    def parts(self) -> list[list[str]]:
        return [list(file.tensors) for file in self._files]

    def describe(self, writer: GGUFWriter) -> None:
        for key in self.metadata:
            if not key.startswith(DROPPED):
                writer.add_raw(key, self._files[0])

    def pieces(self, name: str, rows: int) -> Iterator[Piece]:
        file = self._file[name]
        t, raw = file.tensors[name], file.raw(name).reshape(-1)
        size = row_nbytes(t.type, t.shape[-1])
        for start in range(0, t.nbytes, rows * size):
            stop = min(start + rows * size, t.nbytes)

            def read(start: int = start, stop: int = stop) -> np.ndarray:
                return raw[start:stop]

            def done(start: int = start, stop: int = stop) -> None:
                file.release(name, start, stop)

            yield Piece((stop - start) // size, read, done)

    def is_read(self, path: Path) -> bool:
        return path.exists() and any(path.samefile(file.path) for file in self._files)

    def close(self) -> None:
        for file in self._files:
            file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def _others(self) -> list[Path]:
        count = self._files[0].get("split.count", 0)
        if not isinstance(count, int) or count < 2:
            return []
        found = _PART.match(self.path.name)
        if found is None or int(found[3]) != count or int(found[2]) != 1:
            raise UsageError(
                f"{shown(self.path)} is one of {count} parts of a model. Give the first, named "
                f"NAME-00001-of-{count:05}.gguf, with the others beside it."
            )
        return [self.path.with_name(part_name(found[1], i, count)) for i in range(1, count)]

    def _joined(self) -> dict[str, TensorInfo]:
        self._file: dict[str, GGUFFile] = {}
        for file in self._files:
            for name in file.tensors:
                if name in self._file:
                    raise FormatError(
                        f"{shown(file.path)}: tensor {shown(name)} is in another part, too. Copy it again."
                    )
                self._file[name] = file
        return {name: file.tensors[name] for name, file in self._file.items()}


def part_name(stem: str, i: int, count: int) -> str:
    """llama.cpp's names for the parts of a file, i from 0."""
    return f"{stem}-{i + 1:05}-of-{count:05}.gguf"
