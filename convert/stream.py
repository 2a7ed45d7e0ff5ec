"""Streams tensors from checkpoint to file in slices of a few megabytes: read, checked, transformed, encoded.

A pool of threads encodes slices, which are written in order: memory does not depend on the size of the model or of its
largest tensor, and without computation the speed is the disk's.
"""

import math
from collections import deque
from collections.abc import Generator, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np

from hybrid.quant.ggml import formats
from hybrid.quant.ggml.errors import CheckpointError, Remedy, UnsupportedError, shown
from hybrid.quant.ggml.types import TRAITS, GGMLType

from .checkpoint import Dtype, StoredTensor
from .checkpoint.dequantized import DequantizedTensor
from .kept_blocks import column_order
from .plan import TensorJob

SLICE_VALUES = 1 << 20  # values of a slice, about
_SAME = {Dtype.F32: GGMLType.F32, Dtype.F16: GGMLType.F16, Dtype.BF16: GGMLType.BF16}
# Type, mask of a float's exponent (all bits set in infinities and NaNs), mask of all bits but the sign.
_BITS: dict[Dtype, tuple[Any, int, int]] = {
    Dtype.F32: (np.dtype("<u4"), 0x7F800000, 0x7FFFFFFF),
    Dtype.F16: (np.dtype("<u2"), 0x7C00, 0x7FFF),
    Dtype.BF16: (np.dtype("<u2"), 0x7F80, 0x7FFF),
}


@dataclass(frozen=True)
class SourceSlice:
    """Rows [start, stop) of one source of a job. A tensor is seen as [first dimension, product of the others]."""

    job: TensorJob
    tensor: StoredTensor
    start: int
    stop: int

    @property
    def columns(self) -> int:
        return math.prod(self.tensor.shape[1:])

    @property
    def copied(self) -> bool:
        """Whether the file contains the checkpoint's bits, possibly in another order."""
        transform = self.job.row.transform
        kind = self.tensor.block_type
        if kind is None and isinstance(self.tensor.dtype, Dtype):
            kind = _SAME.get(self.tensor.dtype)
        same = kind is self.job.planned.type
        return same and not (transform and transform.arithmetic)

    def source(self) -> np.ndarray:
        """The values, in the checkpoint's type, or the blocks of which they are bytes. CheckpointError when one is NaN
        or infinite."""
        if self.tensor.block_type is not None:
            assert self.copied, self.tensor.name
            return self.tensor.blocks(self.start, self.stop)
        values = self.tensor.read(self.start * self.columns, self.stop * self.columns)
        assert isinstance(self.tensor.dtype, Dtype)
        if not _finite(values, self.tensor.dtype):
            raise CheckpointError(
                f"{shown(self.tensor.name)} holds NaN or infinite values (in {self.tensor.file.where}). "
                "The checkpoint is damaged or its training failed."
            )
        return values.reshape(-1, self.columns)

    def moved(self) -> np.ndarray:
        """`source` after a transform that does not compute: the bits of a copied tensor."""
        transform = self.job.row.transform
        packed = self.tensor if isinstance(self.tensor, DequantizedTensor) and self.tensor.packed else None
        if packed and transform and transform.along == "columns":
            order = column_order(transform, packed.shape[-1])
            return self._padded(packed.blocks(self.start, self.stop, order))
        values = self.source()
        return self._padded(transform.apply(values, self.start) if transform else values)

    def values(self) -> np.ndarray:
        """What the file should hold, f32 [rows, columns]."""
        transform = self.job.row.transform
        values = _as_f32(self.source(), self.tensor)
        if transform is None:
            return self._padded(values)
        values = transform.apply(values, self.start)
        if transform.arithmetic and not _finite(values, Dtype.F32):
            raise CheckpointError(f"{shown(self.tensor.name)}: {transform.name} of its values overflows.")
        return self._padded(values)

    @property
    def padding(self) -> int:
        """Rows of zeros after this slice."""
        return self.job.row.padding if self.stop == self.tensor.shape[0] else 0

    def _padded(self, values: np.ndarray) -> np.ndarray:
        if not self.padding:
            return values
        return np.concatenate([values, np.zeros((self.padding, values.shape[1]), values.dtype)])

    @property
    def nbytes(self) -> int:
        """Bytes in the file, with padding."""
        # by its share of all rows: a transform may leave a row fewer values
        n_rows = sum(tensor.shape[0] for tensor in self.job.stored) + self.job.row.padding
        return (self.stop - self.start + self.padding) * self.job.planned.nbytes // n_rows

    def encoded(self) -> np.ndarray:
        """The bytes for the file, in an array of any type."""
        if self.copied:
            return self.moved()
        return encode(self.job.planned.type, self.values(), self.job.planned.shape[-1], self.tensor.name)


def slices(job: TensorJob) -> Iterator[SourceSlice]:
    """A job's slices in the order of the file; a job with a constant has no slices."""
    unit = job.row.transform.unit if job.row.transform else 1
    for tensor in job.stored:
        n_rows, columns = tensor.shape[0], math.prod(tensor.shape[1:])
        step = max(SLICE_VALUES // columns // unit, 1) * unit
        if tensor.strides is not None:
            step = n_rows  # its whole extent is read at once
        for start in range(0, n_rows, step):
            yield SourceSlice(job, tensor, start, min(start + step, n_rows))


def encode(kind: GGMLType, values: np.ndarray, row: int, name: str) -> np.ndarray:
    """f32 values, flat or [n, columns], as u8 of type `kind` in rows of `row` values. UnsupportedError on overflow."""
    if kind in (GGMLType.F32, GGMLType.F16, GGMLType.BF16):
        raw = formats.encode(kind, values.reshape(1, -1))
    else:
        raw = formats.encode(kind, values.reshape(-1, row))
    if kind is GGMLType.F16:
        fits = _finite(raw.reshape(-1).view("<f2"), Dtype.F16)
    elif kind is GGMLType.BF16:
        fits = _finite(raw.reshape(-1).view("<u2"), Dtype.BF16)
    elif kind is GGMLType.Q8_0:
        scales = np.ascontiguousarray(raw.reshape(-1, TRAITS[kind].nbytes)[:, :2])
        fits = _finite(scales.reshape(-1).view("<f2"), Dtype.F16)
    else:
        fits = True
    if not fits:
        raise UnsupportedError(
            f"{shown(name)} has values too large for {kind.name}. BF16 and F32 hold larger ones.", remedy=Remedy.OUTTYPE
        )
    return raw


def encoded(parts: Iterable[SourceSlice], n_threads: int) -> Generator[np.ndarray, None, None]:
    """The bytes of slices, in their order, a few of them ahead. To be closed when it is not used up."""
    pending: deque[Future[np.ndarray]] = deque()
    tasks = iter(parts)
    with ThreadPoolExecutor(n_threads, thread_name_prefix="convert") as pool:
        try:
            while True:
                pending.extend(pool.submit(part.encoded) for part in islice(tasks, n_threads + 2 - len(pending)))
                if not pending:
                    return
                yield pending.popleft().result()
        finally:
            for future in pending:
                future.cancel()


def constant(job: TensorJob) -> np.ndarray:
    """The bytes of a tensor that no source has."""
    assert job.row.constant is not None
    return encode(job.planned.type, job.row.constant, job.planned.shape[-1], "")


def in_order(jobs: list[TensorJob], n_threads: int) -> Generator[tuple[TensorJob, Iterator[np.ndarray]], None, None]:
    """Each job with the bytes of its slices, which must be used up before the next job is taken."""
    with closing(encoded((part for job in jobs for part in slices(job)), n_threads)) as stream:
        for job in jobs:
            n = sum(1 for _ in slices(job))
            yield job, iter([constant(job)]) if job.row.constant is not None else islice(stream, n)


def _finite(values: np.ndarray, dtype: Dtype) -> bool:
    if dtype is Dtype.F64:
        return bool(np.isfinite(values).all())
    bits, exponent, magnitude = _BITS[dtype]
    return not values.size or int((values.view(bits) & magnitude).max()) < exponent


def _as_f32(values: np.ndarray, tensor: StoredTensor) -> np.ndarray:
    if tensor.dtype is Dtype.BF16:
        return formats.decode(GGMLType.BF16, values.view(np.uint8).reshape(len(values), -1))
    with np.errstate(over="ignore"):
        result = values.astype(np.float32, copy=False)
    if tensor.dtype is Dtype.F64 and not _finite(result, Dtype.F32):
        raise UnsupportedError(f"{shown(tensor.name)} has values too large for F32.")
    return result
