"""Weights in, GGUF of another type out: streamed through a pool of threads; memory does not grow with the model."""

import itertools
import math
import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from .ggml.cpus import MAX_THREADS, cpus
from .ggml.errors import FormatError, UsageError, shown
from .ggml.formats import FORMATS
from .ggml.progress import Progress
from .ggml.split import SplitWriter
from .ggml.types import TRAITS, FileType, GGMLType, ValueType
from .imatrix import Imatrix
from .imatrix_data import InputSums
from .layout import prepared
from .planning import PlannedTensor, check_finite, file_type
from .policy import Options
from .pool import in_order
from .refit import refit
from .source import GGUFSource, RowSlice, Source

# Values of a task, about: whole rows, whose output it holds; it decodes and encodes a few of them at a time, which
# stay in the L2 cache.
TASK_VALUES = 1 << 20
CACHED_VALUES = 1 << 17
_OF_THREAD = threading.local()


@dataclass(frozen=True)
class TensorReport(PlannedTensor):
    """What quantizing did to a tensor; of a copied one all but rmse is NaN, and there is no worst row.

    rmse: root mean square of (new - source value), 0 when copied; rms: of the source values. cosine: of the angle
    between old and new weights. worst_row, over all matrices of the tensor, has the largest error for its size:
    worst_error, the ratio of the two root mean squares.
    """

    rmse: float
    rms: float
    cosine: float
    worst_row: int
    worst_error: float


@dataclass(frozen=True)
class QuantizeReport:
    """`nbytes_source` and `nbytes` are the sizes of all files; `dst` is the first of `n_files`; `bits_per_weight` is
    over the new tensors."""

    src: Path
    dst: Path
    file_type: FileType
    n_threads: int
    seconds: float
    nbytes_source: int
    nbytes: int
    n_files: int
    rows: list[TensorReport] = field(repr=False)

    @property
    def bits_per_weight(self) -> float:
        return 8 * sum(t.nbytes for t in self.rows) / sum(math.prod(t.shape) for t in self.rows)


@dataclass
class _Sums:
    """Over rows: squares of errors, of source and of new values; the row with the largest error for its size."""

    error: float = 0.0
    source: float = 0.0
    new: float = 0.0
    worst_row: int = -1
    worst: float = -1.0

    def add(self, sums: np.ndarray, first: int) -> None:
        """sums f64 [row, 3] of rows from `first` on."""
        with np.errstate(all="ignore"):
            ratio = np.where(sums[:, 1] > 0, sums[:, 0] / sums[:, 1], np.where(sums[:, 0] > 0, np.inf, 0))
        i = int(ratio.argmax())
        error, source, new = sums.sum(axis=0).tolist()
        self.merge(_Sums(error, source, new, first + i, float(ratio[i])))

    def merge(self, other: "_Sums") -> None:
        self.error, self.source, self.new = self.error + other.error, self.source + other.source, self.new + other.new
        if other.worst > self.worst:
            self.worst_row, self.worst = other.worst_row, other.worst

    def report(self, t: PlannedTensor) -> TensorReport:
        n = math.prod(t.shape)
        if t.source is t.target:
            return TensorReport(
                **t.__dict__, rmse=0.0, rms=math.nan, cosine=math.nan, worst_row=-1, worst_error=math.nan
            )
        size = 2 * math.sqrt(self.source * self.new)
        return TensorReport(
            **t.__dict__,
            rmse=math.sqrt(self.error / n),
            rms=math.sqrt(self.source / n),
            cosine=(self.source + self.new - self.error) / size if size else 1.0 - (self.error > 0),
            worst_row=self.worst_row,
            worst_error=math.sqrt(self.worst),
        )


@dataclass(frozen=True)
class _Task:
    """`rows` begins with row `first` of a tensor, over all its matrices."""

    tensor: PlannedTensor
    rows: RowSlice
    first: int
    importance: InputSums | None
    effort: int


@dataclass(frozen=True)
class _Done:
    """`data` are rows that are still to be written."""

    task: _Task
    data: np.ndarray | None
    sums: _Sums


def quantize(
    src: Path | str | Source,
    dst: Path | str,
    target: FileType | str,
    *,
    n_threads: int = 0,
    options: Options | None = None,
    imatrix: Imatrix | None = None,
    metadata: Mapping[str, tuple[Any, ValueType]] | None = None,
    allow_requantize: bool = False,
    effort: int = 0,
    keep_split: bool = False,
    split_max_size: int = 0,
    progress: Progress | None = None,
) -> QuantizeReport:
    """Writes `src` to `dst` with its weight matrices as `target`; `policy` says which tensors and which exceptions.

    Metadata is copied byte for byte, but for general.file_type and general.quantization_version, which are set, split.*
    and general.alignment, which would be wrong in the new file, and `metadata`, which is added. n_threads = 0: all that
    this process may use; the bytes do not depend on it. keep_split: as many files as the source has;
    split_max_size: as many as it takes to have no more bytes of tensors in one; `dst` is then the NAME of
    NAME-00001-of-00003.gguf. effort: 0 writes llama-quantize's bytes, more than 0 fits the scale of every block again
    (`refit`). progress(tensor, done, total) in bytes of the source's tensors. Files appear when all are complete and
    not before. Raises UsageError, FormatError, UnsupportedError, HybridError (writing failed).
    """
    began = time.perf_counter()
    dst, kind = Path(dst), file_type(target)
    if n_threads < 0:
        raise UsageError(f"n_threads = {n_threads}: expected a positive number, or 0 for all cores.")
    if n_threads > MAX_THREADS:
        raise UsageError(f"n_threads = {n_threads}: expected at most {MAX_THREADS}, or 0 for all cores.")
    n_threads = n_threads or cpus()
    with ExitStack() as stack:
        source: Source = stack.enter_context(GGUFSource(src)) if isinstance(src, str | Path) else src
        writer, planned = prepared(
            source, dst, kind, options, imatrix, metadata or {}, allow_requantize, keep_split, split_max_size
        )
        for path in writer.paths:
            if source.is_read(path):
                raise UsageError(f"{shown(path)} is the source itself. Give another output path.")
        with writer:
            rows = _write_tensors(source, writer, planned, imatrix, effort, n_threads, progress)
        return QuantizeReport(
            src=source.path,
            dst=writer.paths[0],
            file_type=kind,
            n_threads=n_threads,
            seconds=time.perf_counter() - began,
            nbytes_source=source.nbytes,
            nbytes=writer.nbytes,
            n_files=len(writer.paths),
            rows=rows,
        )


def _write_tensors(
    source: Source,
    writer: SplitWriter,
    planned: list[PlannedTensor],
    imatrix: Imatrix | None,
    effort: int,
    n_threads: int,
    progress: Progress | None,
) -> list[TensorReport]:
    total = sum(source.tensors[t.name].nbytes for t in planned)
    passed = 0
    rows: list[TensorReport] = []

    def written(task: _Task) -> _Done:
        """Runs on a pool thread, and writes what it made if its part of the file has been begun."""
        done, name = _recode(task), task.tensor.name
        if done.data is not None and writer.takes(name):
            put(done)
            done = _Done(task, None, done.sums)
            task.rows.done()
        return done

    def put(done: _Done) -> None:
        assert done.data is not None
        t = done.task.tensor
        writer.put(t.name, done.task.first * _bytes_of(t.target, t.shape[-1]), done.data)

    pool = ThreadPoolExecutor(n_threads, thread_name_prefix="quantize")
    try:
        # Twice as many tasks as threads: the writer's turn does not make a thread wait, and memory stays bounded.
        stream = in_order(pool, written, _tasks(source, planned, imatrix, effort), 2 * n_threads)
        for t, results in itertools.groupby(stream, lambda done: done.task.tensor):
            writer.begin(t.name)
            sums = _Sums()
            for done in results:
                if done.data is not None:
                    put(done)
                    done.task.rows.done()
                sums.merge(done.sums)
                passed += done.task.rows.n * _bytes_of(t.source, t.shape[-1])
                if progress:
                    progress(t.name, passed, total)
            writer.end(t.name)
            rows.append(sums.report(t))
    finally:
        pool.shutdown(cancel_futures=True)
    return rows


def _tasks(source: Source, planned: Iterable[PlannedTensor], imatrix: Imatrix | None, effort: int) -> Iterator[_Task]:
    for t in planned:
        entry = imatrix.entries.get(t.name) if imatrix else None
        first = 0
        for part in source.slices(t.name, max(1, TASK_VALUES // t.shape[-1])):
            yield _Task(t, part, first, entry, effort)
            first += part.n


def _recode(task: _Task) -> _Done:
    """Runs on a pool thread. FormatError when there are values that the new type cannot hold."""
    from .ggml.kernels import coding, errors, recode  # import numba

    t, stored, sums = task.tensor, task.rows.read(), _Sums()
    n, rows = t.shape[-1], task.rows.n
    before, after = _bytes_of(t.source, n), _bytes_of(t.target, n)
    copied = t.source is t.target
    if copied and TRAITS[t.source].block > 1:
        return _Done(task, stored, sums)
    data = stored if copied else np.empty(rows * after, np.uint8)
    of_rows = np.empty((rows, 3))
    if _in_one_pass(task) and recode.can_recode(t.source, t.target, n):
        if copied and recode.all_finite(t.source, stored):
            return _Done(task, data, sums)
        if not copied and recode.recode(t.source, t.target, stored, data.reshape(rows, -1), of_rows):
            sums.add(of_rows, task.first)
            return _Done(task, data, sums)
    per_matrix = t.shape[-2] if len(t.shape) > 1 else 1
    # Few enough rows that a weight is read from memory once, not once per operation; of one matrix.
    most = min(max(1, CACHED_VALUES // n), rows)
    old, new = _scratch(2 * most * n).reshape(2, most, n)
    importance = task.importance.importance() if task.importance else None
    start = 0
    while start < rows:
        matrix, row = divmod(task.first + start, per_matrix)
        stop = min(start + most, rows, start + per_matrix - row)
        x = coding.decode(t.source, stored[start * before : stop * before].reshape(-1, before), old[: stop - start])
        if copied:
            check_finite(t, x, range(task.first + start, task.first + stop))
        else:
            blocks = data[start * after : stop * after].reshape(-1, after)
            of_matrix = None if importance is None else importance[matrix]
            coding.encode(t.target, x, blocks, of_matrix)
            if task.effort:
                refit(t.target, x, blocks, of_matrix)
            decoded = coding.decode(t.target, blocks, new[: stop - start])
            if not errors.error_sums(x, decoded, of_rows[start:stop]):
                of_rows[start:stop] = _wide_sums(t, x, decoded, task.first + start)
        start = stop
    if not copied:
        sums.add(of_rows, task.first)
    return _Done(task, data, sums)


def _in_one_pass(task: _Task) -> bool:
    """Whether all that is done to a weight is encoding it by the rule of its type."""
    return not task.effort and (task.importance is None or FORMATS[task.tensor.target].weighted is None)


def _scratch(n: int) -> np.ndarray:
    """f32 [n] of this thread, overwritten by its next task."""
    values: np.ndarray | None = getattr(_OF_THREAD, "values", None)
    if values is None or values.size < n:
        _OF_THREAD.values = values = np.empty(n, np.float32)
    return values[:n]


def _wide_sums(t: PlannedTensor, x: np.ndarray, decoded: np.ndarray, first: int) -> np.ndarray:
    """f64 [row, 3] as `error_sums` has them, of values too large for it; FormatError when there are no such numbers."""
    check_finite(t, x, range(first, first + len(x)))
    if not np.isfinite(decoded).all():
        raise FormatError(
            f"tensor {shown(t.name)} has values up to {np.abs(x).max():.3g}, too large for {t.target.name}. "
            "Use BF16 or F32."
        )
    wide, other = x.astype(np.float64), decoded.astype(np.float64)
    return np.stack([np.square(v).sum(axis=1) for v in (other - wide, wide, other)], axis=1)


def _bytes_of(kind: GGMLType, n: int) -> int:
    """Size of `n` values in whole blocks."""
    return n // TRAITS[kind].block * TRAITS[kind].nbytes
