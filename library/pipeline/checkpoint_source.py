"""A Hugging Face checkpoint as a source for quantization: converted tensor by tensor, without a file in between."""

import functools
import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from hybrid.convert.plan import PreparedConversion, TensorJob, in_tower, prepare
from hybrid.convert.stream import encode, slices
from hybrid.quant.ggml.reader import TensorInfo
from hybrid.quant.source import DROPPED, RowSlice, Writer


class CheckpointSource:
    """Yields the tensors that `hybrid convert` would write in the checkpoint's own type. Implements
    `quant.source.Source`.
    """

    def __init__(self, path: Path, *, vision: bool = False) -> None:
        """vision: the checkpoint's vision tower, if it has one, becomes a file of its own."""
        self.path = path
        self._prepared: PreparedConversion = prepare(path, keep=False, elsewhere=in_tower(path) if vision else None)
        self._jobs: dict[str, TensorJob] = {job.planned.name: job for job in self._prepared.jobs}
        planned = (job.planned for job in self._jobs.values())
        self.tensors = {t.name: TensorInfo(t.name, t.shape, t.type, 0, t.nbytes) for t in planned}
        self.parts = [list(self.tensors)]

    @property
    def notes(self) -> tuple[str, ...]:
        """Notes on facts that the conversion could not keep."""
        return self._prepared.plan.notes

    @property
    def nbytes(self) -> int:
        return self._prepared.plan.nbytes

    @property
    def metadata(self) -> Mapping[str, Any]:
        return self._prepared.plan.metadata

    def describe(self, writer: Writer) -> None:
        writer.add("general.architecture", self._prepared.family.arch)
        for key, value, kind in self._prepared.key_values:
            if not key.startswith(DROPPED):
                writer.add(key, value, kind)

    def slices(self, name: str, rows: int) -> Iterator[RowSlice]:
        """Rows in the conversion's slices."""
        job = self._jobs[name]
        columns = job.planned.shape[-1]
        if job.row.constant is not None:
            encoded = encode(job.planned.type, job.row.constant, columns, name)
            yield RowSlice(math.prod(job.planned.shape) // columns, functools.partial(_flat, encoded), lambda: None)
            return
        for part in slices(job):
            count = (part.stop - part.start) * part.columns // columns

            def read(part: Any = part) -> np.ndarray:
                return _flat(part.encoded())

            yield RowSlice(count, read, lambda: None)

    def is_read(self, path: Path) -> bool:
        sources = {tensor.file.path for job in self._jobs.values() for tensor in job.stored}
        return path.exists() and any(path.samefile(source) for source in sources)


def _flat(a: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(a).view(np.uint8).reshape(-1)
