"""Sources of weights: a GGUF file, all parts of a model, or any object that yields rows of tensors."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol, Self

import numpy as np

from .ggml.reader import TensorInfo
from .ggml.split import PREFIX, SplitWriter, open_gguf
from .ggml.types import row_nbytes
from .ggml.writer import GGUFWriter

Writer = GGUFWriter | SplitWriter
# Keys that would be wrong in a new file.
DROPPED = (PREFIX, "general.alignment")


@dataclass(frozen=True)
class RowSlice:
    """`n` rows of a tensor. read() returns their bytes, u8 flat, in the tensor's type, on any thread, once; done() says
    that they are not needed any more."""

    n: int
    read: Callable[[], np.ndarray]
    done: Callable[[], None]


class Source(Protocol):
    """A source of weights. `tensors` in any order. `parts`: names of tensors, file by file. `nbytes`: of all files."""

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

    def describe(self, writer: Writer) -> None:
        """Gives the writer all metadata except `DROPPED`."""

    def slices(self, name: str, rows: int) -> Iterator[RowSlice]:
        """All rows of a tensor in order, about `rows` per slice at most."""

    def is_read(self, path: Path) -> bool:
        """Whether `path` is a file that is being read."""


class GGUFSource:
    """A GGUF file, or all parts of a split one, given the first. Close it, or use it in a `with`."""

    def __init__(self, path: Path | str) -> None:
        self.path = Path(path)
        self._file = open_gguf(self.path)
        self.tensors = self._file.tensors

    @property
    def metadata(self) -> Mapping[str, Any]:
        return self._file.metadata

    @property
    def nbytes(self) -> int:
        return self._file.nbytes

    @property
    def parts(self) -> list[list[str]]:
        return [list(file.tensors) for file in self._file.parts]

    def describe(self, writer: Writer) -> None:
        for key in self.metadata:
            if not key.startswith(DROPPED):
                writer.add_raw(key, self._file)

    def slices(self, name: str, rows: int) -> Iterator[RowSlice]:
        file = self._file
        t, raw = file.tensors[name], file.raw(name).reshape(-1)
        size = row_nbytes(t.type, t.shape[-1])
        for start in range(0, t.nbytes, rows * size):
            stop = min(start + rows * size, t.nbytes)

            def read(start: int = start, stop: int = stop) -> np.ndarray:
                return raw[start:stop]

            def done(start: int = start, stop: int = stop) -> None:
                file.release(name, start, stop)

            yield RowSlice((stop - start) // size, read, done)

    def is_read(self, path: Path) -> bool:
        return path.exists() and any(path.samefile(file.path) for file in self._file.parts)

    def close(self) -> None:
        self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()
