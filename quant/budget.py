"""Types for all matrices such that the file, or its tensors, are as large as they may be and no larger.

What `target` measures of every type and what is known of every matrix is put together here with what else a file holds:
metadata, padding, parts, tensors whose type is not chosen.
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
    """All tensors; of the matrices whose type is chosen, the types that they may get (`target.measure`) and the KL
    divergence per noise."""

    planned: list[PlannedTensor]
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


def tensor_nbytes(path: Path, imatrix: Imatrix | None = None, *, allow_requantize: bool = False) -> SizeOf:
    """Counts the bytes of all tensors alone."""

    def counted(kind: FileType, options: Options) -> int:
        planned = plan(path, kind, options=options, imatrix=imatrix, allow_requantize=allow_requantize)
        return sum(t.nbytes for t in planned)

    return counted


def of_file_size(known: Measured, most: int, options: Options, file_nbytes: SizeOf) -> tuple[FileType, Options]:
    """The types for a file of at most `most` bytes: what to name it, and `options` with them. UsageError: too few."""
    kind, chosen = _of_size(known, most, options, file_nbytes)
    least = file_nbytes(kind, chosen)
    if least > most:
        raise UsageError(
            f"a file of {most} bytes cannot be made: the smallest that is possible here has {least} bytes. "
            "Give at least that."
        )
    return kind, chosen


def of_bits_per_weight(known: Measured, most: float, options: Options, tensors: SizeOf) -> tuple[FileType, Options]:
    """The same for all tensors' bits per weight; `tensors` counts their bytes alone."""
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
