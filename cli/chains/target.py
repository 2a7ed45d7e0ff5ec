"""`hybrid quantize --target-bpw` and `--target-size`: which types, by what each matrix does to the predictions."""

import math
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from hybrid.quant import GGUFSource, Imatrix, Options, plan, rewrite, target
from hybrid.quant.ggml import formats
from hybrid.quant.ggml.errors import UsageError
from hybrid.quant.ggml.reader import GGUFFile
from hybrid.quant.ggml.split import open_gguf
from hybrid.quant.ggml.types import FileType, GGMLType
from hybrid.quant.pool import cpus
from hybrid.quant.refit import refit

from .. import console, texts
from . import models

if TYPE_CHECKING:
    from hybrid.infer.evaluate.sensitivity import Probe
    from hybrid.quant import PlannedTensor

N_CTX, CHUNKS = 256, 8
EFFORT = 1  # of files whose types are chosen: nobody expects llama-quantize's bytes of them


@dataclass(frozen=True)
class Measured:
    """All tensors, the types that each matrix may get, and its KL divergence per noise."""

    planned: "list[PlannedTensor]"
    choices: dict[str, list[target.Candidate]]
    sensitivity: Mapping[str, float]

    @property
    def n_weights(self) -> int:
        return sum(math.prod(t.shape) for t in self.planned)

    def nbytes(self, bits_per_weight: float) -> int:
        """The most bytes of all tensors that are not more bits per weight."""
        nbytes = int(bits_per_weight * self.n_weights / 8) + 1
        while 8 * nbytes / self.n_weights > bits_per_weight:
            nbytes -= 1
        return nbytes


@dataclass(frozen=True)
class Target:
    """What a file may have at most: so many bytes, all parts together, or so many bits per weight in its tensors."""

    file_size: int | None = None
    bits_per_weight: float | None = None


# bytes of the files that `quantize` would write
FileSize = Callable[[FileType, Options], int]


def choose(
    source: Path,
    text: Path | None,
    wanted: Target,
    options: Options,
    imatrix: Imatrix | None,
    file_size: FileSize,
    *,
    allow_requantize: bool = False,
    effort: int = EFFORT,
    threads: int = 0,
) -> tuple[FileType, Options]:
    """The file type to name and the options that give every matrix its type; the same for any number of threads.

    text: what to measure sensitivities on; without, all matrices count alike. threads = 0: all. UsageError names the
    smallest that is possible where that is not small enough.
    """
    known = measured(
        models.resolve(source),
        text,
        options,
        imatrix,
        allow_requantize=allow_requantize,
        effort=effort,
        threads=threads,
    )
    if wanted.file_size is not None:
        return of_file_size(known, wanted.file_size, options, file_size)
    assert wanted.bits_per_weight is not None
    tensors = tensor_bytes(models.resolve(source), imatrix, allow_requantize=allow_requantize)
    return of_bits_per_weight(known, wanted.bits_per_weight, options, tensors)


def tensor_bytes(path: Path, imatrix: Imatrix | None, *, allow_requantize: bool = False) -> FileSize:
    """Counts the bytes of all tensors alone."""

    def counted(kind: FileType, options: Options) -> int:
        planned = plan(path, kind, options=options, imatrix=imatrix, allow_requantize=allow_requantize)
        return sum(t.nbytes for t in planned)

    return counted


def of_file_size(known: Measured, most: int, options: Options, file_size: FileSize) -> tuple[FileType, Options]:
    """The types for a file of at most `most` bytes: what to name it, and `options` with them. UsageError: too few."""
    kind, chosen = _of_size(known, most, options, file_size)
    least = file_size(kind, chosen)
    if least > most:
        raise UsageError(
            f"--target-size {most}: the smallest file that is possible here has {least} bytes. Give at least that."
        )
    return kind, chosen


def of_bits_per_weight(known: Measured, most: float, options: Options, tensors: FileSize) -> tuple[FileType, Options]:
    """The same for all tensors' bits per weight; `tensors` counts their bytes alone."""
    kind, chosen = _of_size(known, known.nbytes(most), options, tensors)
    least = 8 * tensors(kind, chosen) / known.n_weights
    if least > most:
        raise UsageError(
            f"--target-bpw {most:g}: the smallest that is possible here is {math.ceil(least * 1e4) / 1e4:.4f}. "
            "Give at least that."
        )
    return kind, chosen


def _of_size(known: Measured, most: int, options: Options, nbytes: FileSize) -> tuple[FileType, Options]:
    def of(types: Mapping[str, GGMLType]) -> tuple[FileType, Options]:
        return target.file_type_of(types, known.choices), replace(options, by_name=types)

    return of(target.solve_whole(known.choices, known.sensitivity, most, lambda types: nbytes(*of(types))))


def measured(
    path: Path,
    text: Path | None,
    options: Options,
    imatrix: Imatrix | None,
    *,
    allow_requantize: bool = False,
    effort: int = EFFORT,
    threads: int = 0,
) -> Measured:
    """Errors of every matrix in every type it may get and, with a text, what these errors do to the model's predictions
    there."""
    with GGUFSource(path) as opened:
        planned = plan(
            opened,
            FileType.Q8_0,
            options=replace(options, pure=True),
            imatrix=imatrix,
            allow_requantize=allow_requantize,
        )
        with console.ProgressBar("measuring errors", "tensors") as progress:
            choices = target.measure(opened, planned, imatrix, progress, threads, effort)
        sensitivity: Mapping[str, float] = dict.fromkeys(choices, 1.0)
        if text is not None:
            free = [t for t in planned if t.name in choices]
            sensitivity = _sensitivities(path, text, free, choices, imatrix, effort, threads)
    return Measured(planned, choices, sensitivity)


def _sensitivities(
    path: Path,
    text: Path,
    tensors: "Sequence[PlannedTensor]",
    choices: Mapping[str, Sequence[target.Candidate]],
    imatrix: Imatrix | None,
    effort: int,
    threads: int,
) -> dict[str, float]:
    """KL divergence per noise of every matrix: each alone is quantized in a copy of the file that the model reads."""
    from hybrid.infer.evaluate.sensitivity import divergences

    prose = texts.read_text(text)
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="hybrid-")))
        copy = folder / path.name
        with open_gguf(path) as parts:
            rewrite.copy(parts, copy)
        model = stack.enter_context(models.load(copy, n_ctx=N_CTX, n_seq_max=4, n_threads=threads, exact=True))
        progress = stack.enter_context(console.ProgressBar("measuring sensitivity", "tensors"))
        sensitivity = {}
        measured = divergences(
            model, prose, _probes(copy, tensors, imatrix, effort, threads), n_ctx=N_CTX, chunks=CHUNKS
        )
        for i, (name, divergence) in enumerate(measured):
            progress(name, i + 1, len(tensors))
            kind = _probe_type(choices[name])
            noise = next(c.noise for c in choices[name] if c.type is kind)
            sensitivity[name] = max(divergence, 1e-12) / noise if noise else 0.0
    return sensitivity


def _probe_type(options: Sequence[target.Candidate]) -> GGMLType:
    """The candidate next to the type that is made for measuring."""
    kinds = [c.type for c in options]
    return target.PROBE if target.PROBE in kinds else kinds[len(kinds) // 2]


def _probes(
    copy: Path, tensors: "Sequence[PlannedTensor]", imatrix: Imatrix | None, effort: int, threads: int
) -> "Iterator[Probe]":
    from hybrid.infer.evaluate.sensitivity import Probe

    memory = np.memmap(copy, np.uint8, mode="r+")
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
    """Rows of matrix `part[0]` as the file has them, u8 flat, with the noise of `kind`."""
    matrix, x = part
    of_matrix = None if importance is None else importance[matrix]
    raw = formats.encode(kind, x, importance=of_matrix)
    if effort:
        refit(kind, x, raw, of_matrix)
    return formats.encode(source, formats.decode(kind, raw)).reshape(-1)
