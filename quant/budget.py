"""Chooses types for all matrices so that the file, or its tensors, come as close to a limit as possible.

Combines the noise of every type (measured by `target`) and the sensitivity of every matrix with the rest of the file:
metadata, padding, parts, and tensors whose type is fixed.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from . import target
from .ggml.errors import UsageError
from .ggml.types import FileType, GGMLType
from .imatrix import Imatrix
from .planning import PlannedTensor, plan
from .policy import Options

# bytes that `quantize` would write with this file type and these options: of the files, or of their tensors alone
SizeOf = Callable[[FileType, Options], int]


@dataclass(frozen=True)
class Measured:
    """All tensors; for the matrices with a free type, the candidate types (`target.measure`) and the KL divergence per
    noise."""

    planned: list[PlannedTensor]
    choices: dict[str, list[target.Candidate]]
    sensitivity: Mapping[str, float]

    @property
    def n_weights(self) -> int:
        return sum(math.prod(t.shape) for t in self.planned)

    def nbytes(self, bits_per_weight: float) -> int:
        """The largest number of bytes of all tensors within this many bits per weight."""
        nbytes = int(bits_per_weight * self.n_weights / 8) + 1
        while 8 * nbytes / self.n_weights > bits_per_weight:
            nbytes -= 1
        return nbytes


def tensor_nbytes(path: Path, imatrix: Imatrix | None = None, *, allow_requantize: bool = False) -> SizeOf:
    """A function that counts the bytes of all tensors, without metadata."""

    def counted(kind: FileType, options: Options) -> int:
        planned = plan(path, kind, options=options, imatrix=imatrix, allow_requantize=allow_requantize)
        return sum(t.nbytes for t in planned)

    return counted


def of_file_size(known: Measured, most: int, options: Options, file_nbytes: SizeOf) -> tuple[FileType, Options]:
    """The file type for at most `most` bytes, and `options` with the chosen types. UsageError: too small."""
    kind, chosen = _of_size(known, most, options, file_nbytes)
    least = file_nbytes(kind, chosen)
    if least > most:
        raise UsageError(
            f"a file of {most} bytes cannot be made: the smallest that is possible here has {least} bytes. "
            "Give at least that."
        )
    return kind, chosen


def of_bits_per_weight(known: Measured, most: float, options: Options, tensors: SizeOf) -> tuple[FileType, Options]:
    """As `of_file_size`, for a limit on bits per weight of all tensors; `tensors` counts their bytes."""
    kind, chosen = _of_size(known, known.nbytes(most), options, tensors)
    least = 8 * tensors(kind, chosen) / known.n_weights
    if least > most:
        raise UsageError(
            f"{most:g} bits per weight are too few: the smallest that is possible here is "
            f"{math.ceil(least * 1e4) / 1e4:.4f}. Give at least that."
        )
    return kind, chosen


def _of_size(known: Measured, most: int, options: Options, nbytes: SizeOf) -> tuple[FileType, Options]:
    def of(types: Mapping[str, GGMLType]) -> tuple[FileType, Options]:
        return target.file_type_of(types, known.choices), replace(options, by_name=types)

    return of(target.solve_whole(known.choices, known.sensitivity, most, lambda types: nbytes(*of(types))))
