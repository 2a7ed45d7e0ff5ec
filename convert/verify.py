"""Compares a GGUF file with its checkpoint, tensor by tensor."""

import time
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from hybrid.quant.ggml import formats
from hybrid.quant.ggml.cpus import cpus
from hybrid.quant.ggml.errors import FormatError, UnsupportedError, shown
from hybrid.quant.ggml.metadata import full_key
from hybrid.quant.ggml.mixes import EMBEDDING
from hybrid.quant.ggml.progress import Progress
from hybrid.quant.ggml.reader import GGUFFile
from hybrid.quant.ggml.rotation import PREFIX
from hybrid.quant.ggml.split import open_gguf
from hybrid.quant.ggml.types import FILE_TYPE_WEIGHT, TRAITS, FileType, GGMLType
from hybrid.quant.ggml.vision.tower import is_tower

from .checkpoint.layouts import BlockFloats
from .outtype import OUTTYPES
from .plan import TensorJob, prepare
from .planned import PlannedTensor
from .stream import SourceSlice, slices

# Rounding may change a value x by at most x * relative + absolute (the latter for subnormal values). For Q8_0 x is the
# largest of its block: half a step of 1/127, and the scale's own rounding to f16.
_RELATIVE = {GGMLType.F32: 0.0, GGMLType.F16: 2**-11, GGMLType.BF16: 2**-8, GGMLType.Q8_0: 0.5 / 127 + 2**-11 + 1e-5}
_ABSOLUTE = {GGMLType.F32: 0.0, GGMLType.F16: 2**-25, GGMLType.BF16: 2**-134, GGMLType.Q8_0: 128 * 2**-25}


@dataclass(frozen=True)
class VerifyReport:
    """`n_exact` of `n_tensors` tensors have exactly the checkpoint's values, the others are rounded as their type
    needs."""

    source: Path
    output: Path
    n_tensors: int
    n_exact: int
    nbytes: int
    seconds: float

    def __str__(self) -> str:
        return (
            f"{self.output} is what {self.source} makes: {self.n_tensors} tensors compared, {self.n_exact} exact, "
            f"{self.n_tensors - self.n_exact} within rounding, in {self.seconds:.1f} s"
        )


def verify(
    src: Path | str,
    gguf_path: Path | str,
    *,
    n_threads: int = 0,
    progress: Progress | None = None,
) -> VerifyReport:
    """Reads both and compares the family's keys and every tensor. FormatError names the first difference.

    n_threads = 0: all cores. progress(tensor, done, total) in bytes of compared tensors.
    """
    began = time.perf_counter()
    with open_gguf(gguf_path) as file:
        where = shown(Path(gguf_path).name)
        number = file.get("general.file_type")
        file_type: FileType | str | None = next((t for t in OUTTYPES.values() if _equal(number, int(t))), None)
        keep = any(tensor.type in BlockFloats.PER_SCALE for tensor in file.tensors.values())
        if _equal(number, int(FileType.MXFP4_MOE)) and EMBEDDING in file.tensors:  # not of all matrices: `stated_type`
            kind = file.tensors[EMBEDDING].type
            file_type = next((t for t in OUTTYPES.values() if FILE_TYPE_WEIGHT[t] is kind), None)
            if kind is GGMLType.MXFP4:
                file_type = "auto"
        if _equal(number, int(FileType.PQ2_0)):
            file_type, keep = "auto", True
        if file_type is None:
            raise UnsupportedError(f"{where}: general.file_type = {shown(number)} is not one that `convert` writes.")
        heads = any(".nextn." in name for name in file.tensors)
        prepared = prepare(
            src,
            file_type=file_type,
            vocab_only=not file.tensors,
            with_vocabulary=False,
            heads=heads,
            keep=keep,
            tower=is_tower(file),
        )
        arch = prepared.family.arch
        stated_arch = file.get("general.architecture")
        if not _equal(stated_arch, arch):
            raise FormatError(f"{where}: general.architecture = {shown(stated_arch)}, expected {arch} by the config.")
        for key, value in prepared.family.keys(prepared.plan.file_type):
            full = full_key(arch, key)
            if not _equal(file.get(full), value):
                raise FormatError(f"{where}: {full} = {shown(file.get(full))}, expected {shown(value)} by the config.")
        for full, value, _ in prepared.key_values:
            if full.startswith(PREFIX) and not _equal(found := _plain(file.get(full)), value):
                raise FormatError(f"{where}: {full} = {shown(str(found), 60)}, expected another by the checkpoint.")
        planned = {job.planned.name: job.planned for job in prepared.jobs}
        _compare_lists(where, file, planned)
        total, done, n_exact = sum(t.nbytes for t in planned.values()), 0, 0
        for job, exact in _compare_all(where, file, prepared.jobs, n_threads or cpus()):
            n_exact += exact
            file.release(job.planned.name)
            done += job.planned.nbytes
            if progress:
                progress(job.planned.name, done, total)
        seconds = time.perf_counter() - began
        return VerifyReport(Path(src), Path(gguf_path), len(planned), n_exact, file.nbytes, seconds)


def _plain(value: Any) -> Any:
    """A list for an array of a file."""
    return value.tolist() if hasattr(value, "tolist") else value


def _equal(value: Any, expected: Any) -> bool:
    """Whether a file's value has the expected type and value; floats are compared as f32."""
    if isinstance(expected, np.ndarray):  # its dtype counts also
        return isinstance(value, np.ndarray) and value.dtype == expected.dtype and np.array_equal(value, expected)
    if isinstance(expected, list | tuple):
        same = isinstance(value, list | np.ndarray) and len(value) == len(expected)
        return same and all(map(_equal, value, expected))
    if isinstance(value, np.generic):  # an element of an array
        value = value.item()
    if isinstance(expected, float) and isinstance(value, float):
        with np.errstate(over="ignore"):
            return bool(np.float32(value) == np.float32(expected))
    kind = next(k for k in (bool, int, float, str) if isinstance(expected, k))
    return type(value) is kind and bool(value == expected)


def _compare_lists(where: str, file: GGUFFile, planned: dict[str, PlannedTensor]) -> None:
    for name, tensor in planned.items():
        if name not in file.tensors:
            raise FormatError(f"{where} has no tensor {name}.")
        stored = file.tensors[name]
        if (stored.shape, stored.type) != (tensor.shape, tensor.type):
            raise FormatError(
                f"{where}: {name} is {stored.type.name} {list(stored.shape)}, "
                f"expected {tensor.type.name} {list(tensor.shape)}."
            )
    extra = next((name for name in file.tensors if name not in planned), None)
    if extra is not None:
        raise FormatError(f"{where} has a tensor {shown(extra)} that the checkpoint does not make.")


def _compare_all(where: str, file: GGUFFile, jobs: list[TensorJob], n_threads: int) -> Iterator[tuple[TensorJob, bool]]:
    """Each job, and whether the file has exactly its source's values."""
    pending: deque[Future[bool]] = deque()

    def tasks() -> Iterator[Callable[[], bool]]:
        for job in jobs:
            raw = file.raw(job.planned.name).reshape(-1)
            if job.row.constant is not None:
                yield partial(_close, where, job, raw, job.row.constant.reshape(1, -1), "the config")
            done = 0
            for part in slices(job):
                yield partial(_compare, where, part, raw[done : done + part.nbytes])
                done += part.nbytes
            assert job.row.constant is not None or done == len(raw), job.planned.name

    waiting = tasks()
    with ThreadPoolExecutor(n_threads, thread_name_prefix="verify") as pool:
        try:
            for job in jobs:
                exact = True
                for _ in range(1 if job.row.constant is not None else sum(1 for _ in slices(job))):
                    pending.extend(map(pool.submit, islice(waiting, n_threads + 2 - len(pending))))
                    exact &= pending.popleft().result()
                yield job, exact
        finally:
            for future in pending:
                future.cancel()


def _compare(where: str, part: SourceSlice, raw: np.ndarray) -> bool:
    """Compares one slice; True if the file has exactly its values."""
    if not part.copied:
        return _close(where, part.job, raw, part.values(), part.tensor.name)
    if not np.array_equal(raw, part.moved().reshape(-1).view(np.uint8)):
        raise _different(where, part.job, part.tensor.name)
    return True


def _close(where: str, job: TensorJob, raw: np.ndarray, expected: np.ndarray, source: str) -> bool:
    """True if equal, False if as near as the type allows. FormatError otherwise, and for NaN."""
    kind = job.planned.type
    got = formats.decode(kind, np.ascontiguousarray(raw).reshape(1, -1)).reshape(-1)
    want = expected.reshape(-1)
    if np.array_equal(got, want):
        return True
    size = np.abs(want)
    if kind is GGMLType.Q8_0:
        block = TRAITS[kind].block
        size = np.repeat(size.reshape(-1, block).max(axis=1), block)
    with np.errstate(invalid="ignore", over="ignore"):
        near = np.abs(got - want) <= size * _RELATIVE[kind] + _ABSOLUTE[kind]
    if not near.all():
        raise _different(where, job, source)
    return False


def _different(where: str, job: TensorJob, source: str) -> FormatError:
    return FormatError(f"{where}: {job.planned.name} differs from {shown(source)}. Convert the model again.")
