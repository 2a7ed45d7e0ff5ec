"""The keys and tensors of a model that is not one file, such as a conversion that was only planned."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from .errors import shown
from .reader import GGUFFile, TensorInfo
from .types import row_nbytes


class Header(GGUFFile):
    """As an open file. path: its name in errors; read: the bytes of a tensor, u8 flat."""

    def __init__(
        self,
        path: Path,
        metadata: Mapping[str, Any],
        tensors: Mapping[str, TensorInfo],
        read: Callable[[str], np.ndarray],
    ) -> None:
        self.path, self._where = path, shown(path)
        self.metadata = {key: _as_read(value) for key, value in metadata.items()}  # type: ignore[assignment]
        self.tensors, self._read = dict(tensors), read
        self.nbytes = sum(t.nbytes for t in tensors.values())

    def raw(self, name: str) -> np.ndarray:
        t = self.info(name)
        return self._read(name).reshape(*t.shape[:-1], row_nbytes(t.type, t.shape[-1]))

    def release(self, name: str, start: int = 0, stop: int | None = None) -> None:
        """Does nothing: no file is mapped."""

    def expect_parts(self, name: str) -> None:
        """Does nothing: no file is mapped."""

    def release_all(self) -> None:
        """Does nothing: no file is mapped."""


def _as_read(value: Any) -> Any:
    """Numbers of a list as an array, as a file's are."""
    numbers = isinstance(value, list | tuple) and value and all(isinstance(one, int | float) for one in value)
    return np.asarray(value) if numbers else value
