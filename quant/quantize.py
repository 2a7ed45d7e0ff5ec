"""GGUF in, GGUF of another type out: streamed through a pool of threads, in memory that the model does not set."""

import itertools
import math
import os
import re
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from .ggml import formats
from .ggml.errors import FormatError, UnsupportedError, UsageError, shown
from .ggml.reader import GGUFFile, TensorInfo
from .ggml.types import TRAITS, FileType, GGMLType, ValueType
from .ggml.writer import GGUFWriter
from .policy import TARGETS, Reason, decide, is_quantized

QUANTIZATION_VERSION = 2  # ggml.h, GGML_QNT_VERSION

# Values per task. A whole number of blocks of any format; a task holds its output and works in pieces of formats.CHUNK.
TASK = 1 << 20
MAX_THREADS = 512
_BLOCK = re.compile(r"blk\.([0-9]{1,9})\.")


@dataclass(frozen=True)
class PlannedTensor:
    """`shape` in numpy order; `nbytes` is the size as `target`."""

    name: str
    shape: tuple[int, ...]
    source: GGMLType
    target: GGMLType
    reason: Reason
    nbytes: int


@dataclass(frozen=True)
class TensorReport(PlannedTensor):
    """`rmse`: root mean square of (new - source value), 0 when copied; `rms`: of the source values, NaN when copied."""

    rmse: float
    rms: float


@dataclass(frozen=True)
class QuantizeReport:
    """`nbytes_source` and `nbytes` are the sizes of the two files; `bits_per_weight` is over the new one's tensors."""

    src: Path
    dst: Path
    file_type: FileType
    n_threads: int
    seconds: float
    nbytes_source: int
    nbytes: int
    rows: list[TensorReport] = field(repr=False)

    @property
    def bits_per_weight(self) -> float:
        return 8 * sum(t.nbytes for t in self.rows) / sum(math.prod(t.shape) for t in self.rows)


@dataclass(frozen=True)
class Progress:
    """`done` of `total` bytes of the source's tensors are through; `name` is the tensor being written."""

    done: int
    total: int
    name: str


@dataclass(frozen=True)
class _Task:
    """Values [start, stop) of a tensor, counted over all its rows."""

    tensor: PlannedTensor
    raw: np.ndarray
    start: int
    stop: int


@dataclass(frozen=True)
class _Done:
    """The new bytes of a task, made from bytes `source` = (start, stop) of the tensor; sums over its values."""

    name: str
    data: np.ndarray
    squared_error: float
    squared: float
    source: tuple[int, int]


def file_type(target: FileType | str) -> FileType:
    """The target of that name, upper or lower case. UsageError lists those there are."""
    name = target.name if isinstance(target, FileType) else target.strip().upper()
    for kind in TARGETS:
        if kind.name == name:
            return kind
    names = ", ".join(t.name for t in TARGETS)
    if name in FileType.__members__:
        raise UsageError(f"{name} cannot be written by this version. Choose one of {names}.")
    raise UsageError(f"{shown(target)} is not a file type. Choose one of {names}.")


def plan(
    source: GGUFFile, target: FileType | str, *, keep_ssm_f32: bool = True, allow_requantize: bool = False
) -> list[PlannedTensor]:
    """What `quantize` would write, in the order of the new file: llama.cpp's, by layer and then name.

    UsageError when a quantized tensor would be quantized again and that was not allowed.
    """
    kind = file_type(target)
    source.get("general.architecture")
    if not source.tensors:
        raise UsageError(f"{shown(source.path)} holds no tensors, only metadata. Give a file with a model.")
    parts = source.get("split.count", 0)
    if isinstance(parts, int) and parts > 1:
        raise UnsupportedError(
            f"{shown(source.path)} is one of {parts} parts of a model. Join them first: llama-gguf-split --merge."
        )
    planned = []
    for t in sorted(source.tensors.values(), key=_order):
        decision = decide(t.name, t.shape, t.type, kind, source.tensors, keep_ssm_f32=keep_ssm_f32)
        again = is_quantized(t.type) and is_quantized(decision.type) and decision.type is not t.type
        if again and not allow_requantize:
            raise UsageError(
                f"{shown(source.path)}: {shown(t.name)} is {t.type.name} already; {decision.type.name} made from it is "
                "worse than from the original. Start from the F32, F16 or BF16 file, or allow requantizing."
            )
        nbytes = _bytes_of(decision.type, math.prod(t.shape))
        planned.append(PlannedTensor(t.name, t.shape, t.type, decision.type, decision.reason, nbytes))
    return planned


def quantize(
    src: Path | str,
    dst: Path | str,
    target: FileType | str,
    *,
    n_threads: int = 0,
    keep_ssm_f32: bool = True,
    allow_requantize: bool = False,
    progress: Callable[[Progress], None] | None = None,
) -> QuantizeReport:
    """Writes `src` to `dst` with its weight matrices as `target`; `policy` says which tensors and which exceptions.

    Metadata is copied byte for byte, but for general.file_type and general.quantization_version, which are set, and
    split.* and general.alignment, which would be wrong in the new file. n_threads = 0: all that this process may use;
    the bytes do not depend on it. `dst` appears when it is complete and not before. Raises UsageError, FormatError,
    UnsupportedError, HybridError (writing failed).
    """
    began = time.perf_counter()
    src, dst, kind = Path(src), Path(dst), file_type(target)
    if n_threads < 0:
        raise UsageError(f"{n_threads} threads cannot be. Give 0 for all, or a positive number.")
    if n_threads > MAX_THREADS:
        raise UsageError(f"{n_threads} threads are more than the {MAX_THREADS} that make sense. Give 0 for all cores.")
    n_threads = n_threads or _cpus()
    with GGUFFile.open(src) as source:
        if dst.exists() and dst.samefile(src):
            raise UsageError(f"{shown(dst)} is the source itself. Give another output path.")
        planned = plan(source, kind, keep_ssm_f32=keep_ssm_f32, allow_requantize=allow_requantize)
        with GGUFWriter(dst, None) as writer:
            _copy_metadata(source, writer, kind)
            for t in planned:
                writer.declare(t.name, t.shape, t.target)
            nbytes = writer.nbytes
            rows = _write_tensors(source, writer, planned, n_threads, progress)
        seconds = time.perf_counter() - began
        return QuantizeReport(src, dst, kind, n_threads, seconds, source.nbytes, nbytes, rows)


def _cpus() -> int:
    """Those this process may use, where the system tells (macOS does not)."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _order(t: TensorInfo) -> tuple[int, bytes]:
    block = _BLOCK.match(t.name)
    return int(block[1]) if block else -1, t.name.encode()


def _copy_metadata(source: GGUFFile, writer: GGUFWriter, kind: FileType) -> None:
    for key in source.metadata:
        if not key.startswith("split.") and key != "general.alignment":
            writer.add_raw(key, source)
    writer.add("general.quantization_version", QUANTIZATION_VERSION, ValueType.UINT32)
    writer.add("general.file_type", int(kind), ValueType.UINT32)


def _write_tensors(
    source: GGUFFile,
    writer: GGUFWriter,
    planned: list[PlannedTensor],
    n_threads: int,
    progress: Callable[[Progress], None] | None,
) -> list[TensorReport]:
    total = sum(source.tensors[t.name].nbytes for t in planned)
    passed = 0
    rows: list[TensorReport] = []

    def pass_on(results: Iterable[_Done], sums: np.ndarray) -> Iterator[np.ndarray]:
        """The data of one tensor, while its errors are added up and progress is told."""
        nonlocal passed
        for done in results:
            yield done.data
            sums += done.squared_error, done.squared
            start, stop = done.source
            source.release(done.name, start, stop)
            passed += stop - start
            if progress:
                progress(Progress(passed, total, done.name))

    pool = ThreadPoolExecutor(n_threads, thread_name_prefix="quantize")
    try:
        # Twice as many tasks as threads: the writer's turn does not make a thread wait, and memory stays bounded.
        stream = _in_order(pool, _tasks(source, planned), 2 * n_threads)
        for t in planned:
            n = math.prod(t.shape)
            sums = np.zeros(2)
            writer.write(t.name, pass_on(itertools.islice(stream, -(-n // TASK)), sums))
            rmse, rms = np.sqrt(sums / n).tolist()
            rows.append(TensorReport(**t.__dict__, rmse=rmse, rms=rms))
    finally:
        pool.shutdown(cancel_futures=True)
    return rows


def _tasks(source: GGUFFile, planned: Iterable[PlannedTensor]) -> Iterator[_Task]:
    for t in planned:
        raw, n = source.raw(t.name).reshape(-1), math.prod(t.shape)
        for start in range(0, n, TASK):
            yield _Task(t, raw, start, min(start + TASK, n))


def _in_order(pool: ThreadPoolExecutor, tasks: Iterator[_Task], window: int) -> Iterator[_Done]:
    """Results in the order of the tasks, with at most `window` of them begun and not handed out."""
    pending: deque[Future[_Done]] = deque(pool.submit(_recode, task) for task in itertools.islice(tasks, window))
    while pending:
        done = pending.popleft().result()
        pending.extend(pool.submit(_recode, task) for task in itertools.islice(tasks, 1))
        yield done


def _recode(task: _Task) -> _Done:
    """Runs on a pool thread. FormatError when there are values that the new type cannot hold."""
    t = task.tensor
    span = _bytes_of(t.source, task.start), _bytes_of(t.source, task.stop)
    stored = task.raw[slice(*span)]
    if t.source is t.target:
        return _Done(t.name, stored, 0.0, math.nan, span)
    data = np.empty(_bytes_of(t.target, task.stop - task.start), np.uint8)
    squared_error = squared = 0.0
    # Pieces small enough that a weight is read from memory once, not once per operation.
    for start in range(0, task.stop - task.start, formats.CHUNK):
        stop = min(start + formats.CHUNK, task.stop - task.start)
        x = formats.decode(t.source, stored[_bytes_of(t.source, start) : _bytes_of(t.source, stop)])
        piece = data[_bytes_of(t.target, start) : _bytes_of(t.target, stop)]
        formats.encode(t.target, x, piece)
        error = formats.decode(t.target, piece, np.empty_like(x))
        with np.errstate(all="ignore"):
            error -= x
            # Numpy adds f32 pairwise, so that a piece loses no more than a few last bits.
            sums = float(np.square(error, out=error).sum()), float(np.square(x, out=error).sum())
        if not math.isfinite(sum(sums)):
            sums = _check(t, x, piece)
        squared_error += sums[0]
        squared += sums[1]
    return _Done(t.name, data, squared_error, squared, span)


def _check(t: PlannedTensor, x: np.ndarray, piece: np.ndarray) -> tuple[float, float]:
    """The sums of squares in f64, or the reason why there are none."""
    if not np.isfinite(x).all():
        raise FormatError(f"tensor {shown(t.name)} has NaN or infinite values. Convert the model again.")
    decoded = formats.decode(t.target, piece)
    if not np.isfinite(decoded).all():
        raise FormatError(
            f"tensor {shown(t.name)} has values up to {np.abs(x).max():.3g}, too large for {t.target.name}. "
            "Use BF16 or F32."
        )
    wide = x.astype(np.float64)
    return float(np.square(decoded - wide).sum()), float(np.square(wide).sum())


def _bytes_of(kind: GGMLType, n: int) -> int:
    """Size of `n` values in whole blocks."""
    return n // TRAITS[kind].block * TRAITS[kind].nbytes
