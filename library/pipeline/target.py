"""`hybrid quantize --target-bpw` and `--target-size`: chooses types by each matrix's effect on the predictions."""

import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack, closing
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import numpy as np

from hybrid.quant import GGUFSource, Imatrix, Options, budget, plan, rewrite, target
from hybrid.quant.budget import Measured, SizeOf
from hybrid.quant.ggml import formats
from hybrid.quant.ggml.cpus import cpus
from hybrid.quant.ggml.progress import Progress
from hybrid.quant.ggml.reader import GGUFFile
from hybrid.quant.ggml.split import open_gguf
from hybrid.quant.ggml.types import FileType, GGMLType
from hybrid.quant.refit import refit
from hybrid.quant.tensor_parts import Spread

from ..reporting import SILENT, Reporter
from . import models

if TYPE_CHECKING:
    from hybrid.infer import LoadedModel
    from hybrid.infer.evaluate.parts import SpreadModel
    from hybrid.infer.evaluate.sensitivity import Probe
    from hybrid.quant import PlannedTensor

N_CTX, CHUNKS = 256, 8
EFFORT = 1  # chosen types need not give llama-quantize's bytes


@dataclass(frozen=True)
class Target:
    """The limit of a file: bytes of all its parts, or bits per weight of its tensors."""

    file_size: int | None = None
    bits_per_weight: float | None = None


@dataclass(frozen=True)
class Probing:
    """Settings for measuring sensitivities."""

    text: str
    effort: int
    imatrix: Imatrix | None


class Elsewhere(Protocol):
    """Worker processes that measure as this one would, by tensor and by file, in a shared folder."""

    def errors(
        self, planned: "Sequence[PlannedTensor]", imatrix: Imatrix | None, effort: int, progress: Progress
    ) -> dict[str, list[target.Candidate]]:
        """As `target.measure`."""

    def divergences(self, probing: Probing, tensors: "Sequence[PlannedTensor]") -> Iterator[tuple[str, float]]:
        """As `ProbedCopy.divergences`."""

    def spread(self) -> Spread:
        """The workers that quantize parts of the measured file."""

    def model(self, path: Path, n_ctx: int, n_seq_max: int) -> "AbstractContextManager[SpreadModel]":
        """The model of a file, on the workers."""


@dataclass(frozen=True)
class Measuring:
    """How types are tried and measured. threads: 0: all; elsewhere: workers that measure, or None for this process."""

    options: Options
    imatrix: Imatrix | None = None
    allow_requantize: bool = False
    effort: int = EFFORT
    threads: int = 0
    elsewhere: Elsewhere | None = None
    reporter: Reporter = SILENT


def choose(
    path: Path,
    text: str | None,
    wanted: Target,
    file_nbytes: SizeOf,
    how: Measuring,
) -> tuple[FileType, Options]:
    """The file type to name, and the options that give each matrix its type; the same for any number of threads.

    path: a GGUF file. text: for measuring sensitivities; without it all matrices count alike. UsageError names the
    smallest possible size if even that exceeds the limit.
    """
    known = measured(path, text, how)
    if wanted.file_size is not None:
        return budget.of_file_size(known, wanted.file_size, how.options, file_nbytes)
    assert wanted.bits_per_weight is not None
    tensors = budget.tensor_nbytes(path, how.imatrix, allow_requantize=how.allow_requantize)
    return budget.of_bits_per_weight(known, wanted.bits_per_weight, how.options, tensors)


def measured(path: Path, text: str | None, how: Measuring) -> Measured:
    """Errors of every matrix in every candidate type and, with a text, the effect of these errors on predictions."""
    with GGUFSource(path) as opened:
        pure = replace(how.options, pure=True)
        planned = plan(opened, FileType.Q8_0, options=pure, imatrix=how.imatrix, allow_requantize=how.allow_requantize)
        with how.reporter.stage("measuring errors", "tensors") as progress:
            if how.elsewhere is None:
                choices = target.measure(opened, planned, how.imatrix, progress, how.threads, how.effort)
            else:
                choices = how.elsewhere.errors(planned, how.imatrix, how.effort, progress)
        sensitivity: Mapping[str, float] = dict.fromkeys(choices, 1.0)
        if text is not None:
            free = [t for t in planned if t.name in choices]
            sensitivity = _sensitivities(path, free, choices, Probing(text, how.effort, how.imatrix), how)
    return Measured(planned, choices, sensitivity)


class ProbedCopy:
    """A model of a copy of a file, in which one matrix at a time is quantized."""

    def __init__(
        self, path: Path, threads: int, load: "Callable[..., LoadedModel]", within: Path | None = None
    ) -> None:
        """load: as `LoadedModel.load`; within: where the copy's folder is made; None: among temporary files."""
        self._threads = threads
        with ExitStack() as stack:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="hybrid-", dir=within)))
            self._path = folder / path.name
            with open_gguf(path) as parts:
                rewrite.copy(parts, self._path)
            self._model = stack.enter_context(
                load(self._path, n_ctx=N_CTX, n_seq_max=4, n_threads=threads, precision="exact")
            )
            self._stack = stack.pop_all()

    def divergences(self, probing: Probing, tensors: "Sequence[PlannedTensor]") -> Iterator[tuple[str, float]]:
        """(name, mean KL divergence in nats) of each matrix quantized alone."""
        from hybrid.infer.evaluate.sensitivity import divergences

        probes = _probes(self._path, tensors, probing.imatrix, probing.effort, self._threads)
        return divergences(self._model, probing.text, probes, n_ctx=N_CTX, chunks=CHUNKS)

    def close(self) -> None:
        """Closes the model and removes the copy."""
        self._stack.close()


def _sensitivities(
    path: Path,
    tensors: "Sequence[PlannedTensor]",
    choices: Mapping[str, Sequence[target.Candidate]],
    probing: Probing,
    how: Measuring,
) -> dict[str, float]:
    """KL divergence per noise of every matrix, each quantized alone in a copy of the file."""
    with ExitStack() as stack:
        prober: Elsewhere | ProbedCopy
        load = partial(models.load_file, reporter=how.reporter)
        prober = how.elsewhere or stack.enter_context(closing(ProbedCopy(path, how.threads, load)))
        progress = stack.enter_context(how.reporter.stage("measuring sensitivity", "tensors"))
        sensitivity = {}
        for i, (name, divergence) in enumerate(prober.divergences(probing, tensors)):
            progress(name, i + 1, len(tensors))
            kind = _probe_type(choices[name])
            noise = next(c.noise for c in choices[name] if c.type is kind)
            sensitivity[name] = max(divergence, 1e-12) / noise if noise else 0.0
    return sensitivity


def _probe_type(options: Sequence[target.Candidate]) -> GGMLType:
    """The candidate type nearest to the ideal one for measuring."""
    kinds = [c.type for c in options]
    return target.PROBE if target.PROBE in kinds else kinds[len(kinds) // 2]


def _probes(
    copy: Path, tensors: "Sequence[PlannedTensor]", imatrix: Imatrix | None, effort: int, threads: int
) -> "Iterator[Probe]":
    from hybrid.infer.evaluate.sensitivity import Probe

    memory = np.memmap(copy, np.uint8, mode="r+")  # only this process reads the copy, and removes it
    with GGUFFile.open(copy) as file, ThreadPoolExecutor(threads or cpus(), thread_name_prefix="probe") as pool:
        for t in tensors:
            info = file.tensors[t.name]
            where = slice(info.offset, info.offset + info.nbytes)
            kind = _probe_type([target.Candidate(k, 0, 0.0) for k in target.candidates(t, imatrix)])
            original = np.array(memory[where])
            entry = imatrix.entries.get(t.name) if imatrix else None
            importance = entry.importance() if entry else None
            rows = max(1, target.BLOCK // t.shape[-1])
            parts = [
                (matrix, x[start : start + rows])
                for matrix, x in enumerate(file.f32(t.name).reshape(-1, *t.shape[-2:]))
                for start in range(0, len(x), rows)
            ]
            noisy = np.concatenate(list(pool.map(partial(_noisy_rows, t.source, kind, importance, effort), parts)))
            yield Probe(t.name, partial(memory.__setitem__, where, noisy), partial(memory.__setitem__, where, original))


def _noisy_rows(
    source: GGMLType, kind: GGMLType, importance: np.ndarray | None, effort: int, part: tuple[int, np.ndarray]
) -> np.ndarray:
    """Rows of matrix `part[0]` in the file's type, u8 flat, with the noise of `kind`."""
    matrix, x = part
    of_matrix = None if importance is None else importance[matrix]
    raw = formats.encode(kind, x, importance=of_matrix)
    if effort:
        refit(kind, x, raw, of_matrix)
    return formats.encode(source, formats.decode(kind, raw)).reshape(-1)
