"""Quantizes a model: weights stream through a pool of threads, and memory does not grow with the model."""

import itertools
import math
import time
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .ggml.cpus import MAX_THREADS, cpus
from .ggml.errors import UsageError, shown
from .ggml.progress import Progress
from .ggml.split import SplitWriter
from .ggml.types import FileType, ValueType
from .imatrix import Imatrix
from .layout import prepared
from .planning import PlannedTensor, target_name, target_of
from .policy import Options
from .pool import in_order
from .recoding import ErrorSums, Recoded, RecodeTask, TensorReport, bytes_of, recoded, tasks_of
from .source import GGUFSource, Source
from .tensor_parts import Spread, checked, parts_of


@dataclass(frozen=True)
class QuantizeReport:
    """The result. `nbytes_source` and `nbytes`: sizes of all files; `dst`: the first of `n_files`; `bits_per_weight`:
    of the new tensors; `mix`: the name of a mix by role, if there is one in place of the file type's recipe."""

    src: Path
    dst: Path
    file_type: FileType
    mix: str
    n_threads: int
    seconds: float
    nbytes_source: int
    nbytes: int
    n_files: int
    rows: list[TensorReport] = field(repr=False)

    @property
    def bits_per_weight(self) -> float:
        return 8 * sum(t.nbytes for t in self.rows) / sum(math.prod(t.shape) for t in self.rows)


def quantize(  # noqa: PLR0913  what a caller may choose, one argument each
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
    spread: Spread | None = None,
) -> QuantizeReport:
    """Writes `src` to `dst` with its weight matrices in the type `target`; see `policy` for exceptions. With "COPY"
    every tensor keeps its type, unless `options` name another.

    Metadata is copied byte for byte, except: general.file_type and general.quantization_version are set; split.* and
    general.alignment are dropped; `metadata` is added. n_threads = 0: all cores; the bytes do not depend on it.
    keep_split: as many files as the source has; split_max_size: maximum bytes of tensors per file; `dst` is then NAME
    in NAME-00001-of-00003.gguf. effort: 0 writes llama-quantize's bytes, larger values refit the scale of every block
    (`refit`). progress(tensor, done, total) in bytes of the source's tensors. spread: the workers that quantize the
    parts, or None for this process. Files appear only when all are complete. Raises UsageError, FormatError,
    UnsupportedError, HybridError (writing failed).
    """
    began = time.perf_counter()
    dst = Path(dst)
    target_name(target)
    if n_threads < 0:
        raise UsageError(f"n_threads = {n_threads}: expected a positive number, or 0 for all cores.")
    if n_threads > MAX_THREADS:
        raise UsageError(f"n_threads = {n_threads}: expected at most {MAX_THREADS}, or 0 for all cores.")
    n_threads = n_threads or cpus()
    with ExitStack() as stack:
        source: Source = stack.enter_context(GGUFSource(src)) if isinstance(src, str | Path) else src
        kind, options = target_of(source, target, options)
        writer, planned = prepared(
            source, dst, kind, options, imatrix, metadata or {}, allow_requantize, keep_split, split_max_size
        )
        for path in writer.paths:
            if source.is_read(path):
                raise UsageError(f"{shown(path)} is the source itself. Give another output path.")
        with writer:
            if spread is None:
                rows = _write_tensors(source, writer, planned, imatrix, effort, n_threads, progress)
            else:
                parts = list(parts_of(source, planned, writer.lay_out(), imatrix, effort))
                rows = list(checked(parts, spread(parts), progress))
        return QuantizeReport(
            src=source.path,
            dst=writer.paths[0],
            file_type=kind,
            mix=options.mix,
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

    def written(task: RecodeTask) -> Recoded:
        """Runs on a pool thread; also writes the result if its part of the file has been started."""
        done, name = recoded(task), task.tensor.name
        if done.data is not None and writer.takes(name):
            put(done)
            done = Recoded(task, None, done.sums)
            task.rows.done()
        return done

    def put(done: Recoded) -> None:
        assert done.data is not None
        t = done.task.tensor
        writer.put(t.name, done.task.first * bytes_of(t.target, t.shape[-1]), done.data)

    pool = ThreadPoolExecutor(n_threads, thread_name_prefix="quantize")
    try:
        # Twice as many tasks as threads: the writer's turn does not make a thread wait, and memory stays bounded.
        stream = in_order(pool, written, _tasks(source, planned, imatrix, effort), 2 * n_threads)
        for t, results in itertools.groupby(stream, lambda done: done.task.tensor):
            writer.begin(t.name)
            sums = ErrorSums()
            for done in results:
                if done.data is not None:
                    put(done)
                    done.task.rows.done()
                sums.merge(done.sums)
                passed += done.task.rows.n * bytes_of(t.source, t.shape[-1])
                if progress:
                    progress(t.name, passed, total)
            writer.end(t.name)
            rows.append(sums.report(t))
    finally:
        pool.shutdown(cancel_futures=True)
    return rows


def _tasks(
    source: Source, planned: Iterable[PlannedTensor], imatrix: Imatrix | None, effort: int
) -> Iterator[RecodeTask]:
    for t in planned:
        yield from tasks_of(source, t, imatrix.entries.get(t.name) if imatrix else None, effort)
