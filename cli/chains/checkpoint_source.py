"""A Hugging Face checkpoint as a source to quantize: converted tensor by tensor on the way, with no file between."""

import functools
import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from hybrid.convert.plan import Prepared, Work, prepare
from hybrid.convert.stream import encode, pieces
from hybrid.quant.ggml.reader import TensorInfo
from hybrid.quant.source import DROPPED, Piece, Writer


class CheckpointSource:
    """What `hybrid convert` would write, in the checkpoint's own type. Implements `quant.source.Source`."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._prepared: Prepared = prepare(path)
        self._works: dict[str, Work] = {work.planned.name: work for work in self._prepared.works}
        planned = (work.planned for work in self._works.values())
        self.tensors = {t.name: TensorInfo(t.name, t.shape, t.type, 0, t.nbytes) for t in planned}
        self.parts = [list(self.tensors)]

    @property
    def nbytes(self) -> int:
        return self._prepared.plan.nbytes

    @property
    def metadata(self) -> Mapping[str, Any]:
        return self._prepared.plan.metadata

    def describe(self, writer: Writer) -> None:
        writer.add("general.architecture", self._prepared.family.arch)
        for key, value, kind in self._prepared.pairs:
            if not key.startswith(DROPPED):
                writer.add(key, value, kind)

    def pieces(self, name: str, rows: int) -> Iterator[Piece]:
        """In the sizes of the conversion."""
        work = self._works[name]
        columns = work.planned.shape[-1]
        if work.row.constant is not None:
            made = encode(work.planned.type, work.row.constant, columns, name)
            yield Piece(math.prod(work.planned.shape) // columns, functools.partial(_flat, made), lambda: None)
            return
        for piece in pieces(work):
            count = (piece.stop - piece.start) * piece.columns // columns

            def read(piece: Any = piece) -> np.ndarray:
                return _flat(piece.encoded())

            yield Piece(count, read, lambda: None)

    def is_read(self, path: Path) -> bool:
        sources = {tensor.file.path for work in self._works.values() for tensor in work.stored}
        return path.exists() and any(path.samefile(source) for source in sources)


def _flat(a: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(a).view(np.uint8).reshape(-1)
