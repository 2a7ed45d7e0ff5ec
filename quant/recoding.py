"""Encodes rows of tensors in another type and measures the errors: a task at a time, on any thread of any process."""

import math
import threading
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from .ggml.errors import FormatError, shown
from .ggml.formats import FORMATS
from .ggml.types import TRAITS, GGMLType
from .imatrix_data import InputSums
from .planning import PlannedTensor, check_finite
from .refit import refit
from .source import RowSlice, Source

# Values of a task, about: whole rows, whose output it holds; it decodes and encodes a few of them at a time, which
# stay in the L2 cache.
TASK_VALUES = 1 << 20
CACHED_VALUES = 1 << 17
_OF_THREAD = threading.local()


@dataclass(frozen=True)
class TensorReport(PlannedTensor):
    """Errors of a quantized tensor. For a copied one all except rmse are NaN, and there is no worst row.

    rmse: root mean square of (new - source value), 0 when copied; rms: of the source values. cosine: between old and
    new weights. worst_row: the row, over all matrices of the tensor, with the largest relative error, which is
    worst_error (the ratio of the two root mean squares).
    """

    rmse: float
    rms: float
    cosine: float
    worst_row: int
    worst_error: float


@dataclass
class ErrorSums:
    """Sums over rows: squares of errors, of source and of new values; the row with the largest relative error."""

    error: float = 0.0
    source: float = 0.0
    new: float = 0.0
    worst_row: int = -1
    worst: float = -1.0

    def add(self, sums: np.ndarray, first: int) -> None:
        """Adds sums f64 [row, 3] of rows from `first` on."""
        with np.errstate(all="ignore"):
            ratio = np.where(sums[:, 1] > 0, sums[:, 0] / sums[:, 1], np.where(sums[:, 0] > 0, np.inf, 0))
        i = int(ratio.argmax())
        error, source, new = sums.sum(axis=0).tolist()
        self.merge(ErrorSums(error, source, new, first + i, float(ratio[i])))

    def merge(self, other: "ErrorSums") -> None:
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
class RecodeTask:
    """A piece of work; `rows` begins with row `first` of a tensor, counted over all its matrices."""

    tensor: PlannedTensor
    rows: RowSlice
    first: int
    importance: InputSums | None
    effort: int


@dataclass(frozen=True, eq=False)
class Recoded:
    """A result; `data`: rows that must still be written."""

    task: RecodeTask
    data: np.ndarray | None
    sums: ErrorSums


def tasks_of(source: Source, t: PlannedTensor, importance: InputSums | None, effort: int) -> Iterator[RecodeTask]:
    """The tasks for all rows of a tensor, in order."""
    first = 0
    for part in source.slices(t.name, max(1, TASK_VALUES // t.shape[-1])):
        yield RecodeTask(t, part, first, importance, effort)
        first += part.n


def recoded(task: RecodeTask) -> Recoded:
    """Runs on a pool thread. FormatError: a value that the new type cannot represent."""
    from .ggml.kernels import coding, errors, recode  # import numba

    t, stored, sums = task.tensor, task.rows.read(), ErrorSums()
    n, rows = t.shape[-1], task.rows.n
    before, after = bytes_of(t.source, n), bytes_of(t.target, n)
    copied = t.source is t.target
    if copied and TRAITS[t.source].block > 1:
        return Recoded(task, stored, sums)
    data = stored if copied else np.empty(rows * after, np.uint8)
    of_rows = np.empty((rows, 3))
    if _in_one_pass(task) and recode.can_recode(t.source, t.target, n):
        if copied and recode.all_finite(t.source, stored):
            return Recoded(task, data, sums)
        if not copied and recode.recode(t.source, t.target, stored, data.reshape(rows, -1), of_rows):
            sums.add(of_rows, task.first)
            return Recoded(task, data, sums)
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
    return Recoded(task, data, sums)


def _in_one_pass(task: RecodeTask) -> bool:
    """Whether a weight is only encoded by its type's rule, without further steps."""
    return not task.effort and (task.importance is None or FORMATS[task.tensor.target].weighted is None)


def _scratch(n: int) -> np.ndarray:
    """f32 [n], a buffer of this thread that its next task overwrites."""
    values: np.ndarray | None = getattr(_OF_THREAD, "values", None)
    if values is None or values.size < n:
        _OF_THREAD.values = values = np.empty(n, np.float32)
    return values[:n]


def _wide_sums(t: PlannedTensor, x: np.ndarray, decoded: np.ndarray, first: int) -> np.ndarray:
    """f64 [row, 3] as from `error_sums`, for values too large for it. FormatError: these sums overflow also."""
    check_finite(t, x, range(first, first + len(x)))
    if not np.isfinite(decoded).all():
        raise FormatError(
            f"tensor {shown(t.name)} has values up to {np.abs(x).max():.3g}, too large for {t.target.name}. "
            "Use BF16 or F32."
        )
    wide, other = x.astype(np.float64), decoded.astype(np.float64)
    return np.stack([np.square(v).sum(axis=1) for v in (other - wide, wide, other)], axis=1)


def bytes_of(kind: GGMLType, n: int) -> int:
    """Bytes of `n` values in whole blocks."""
    return n // TRAITS[kind].block * TRAITS[kind].nbytes
