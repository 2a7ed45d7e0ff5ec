"""The best type for every matrix within a size.

What a type does to a matrix is measured: the squares of its errors, weighted by importance, as a share of the weighted
squares of the weights. That is the noise it puts into its product, relative to the product. What a matrix's noise does
to the predictions is its sensitivity: KL divergence per noise, which is measured by quantizing that matrix alone; to
first order it is proportional to the noise, and adds up over matrices. The types with the least sum within the size are
found on the lower hulls of (bytes, divergence) of all matrices.
"""

import heapq
import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from .ggml import formats
from .ggml.errors import UsageError
from .ggml.mixes import fitting
from .ggml.types import FileType, GGMLType, row_nbytes
from .imatrix import Imatrix
from .plan import PlannedTensor
from .policy import Reason
from .source import Source

CANDIDATES = tuple(GGMLType[name] for name in ("Q2_K", "Q3_K", "IQ4_XS", "Q4_K", "Q5_K", "Q6_K", "Q8_0"))
WITH_IMPORTANCE = tuple(GGMLType[name] for name in ("IQ2_XXS", "IQ2_XS", "IQ2_S", "IQ3_XXS", "IQ3_S"))
# The one that sensitivity is measured with: enough noise to see, little enough to be proportional.
PROBE = GGMLType.Q4_K
SAMPLE = 1 << 19  # weights of a matrix that are looked at
_NAMED = {
    GGMLType.IQ2_S: FileType.IQ2_M,
    GGMLType.Q3_K: FileType.Q3_K_M,
    GGMLType.Q4_K: FileType.Q4_K_M,
    GGMLType.Q5_K: FileType.Q5_K_M,
    GGMLType.MXFP4: FileType.MXFP4_MOE,
}


@dataclass(frozen=True)
class Candidate:
    """A type for a matrix: its size, and the noise that it makes."""

    type: GGMLType
    nbytes: int
    noise: float


def is_free(t: PlannedTensor) -> bool:
    """Whether a type may be chosen for it: a matrix for which neither the user nor a rule for SSM chose one."""
    return t.reason in (Reason.ASKED, Reason.OUTPUT, Reason.RECIPE, Reason.SHAPE)


def candidates(t: PlannedTensor, imatrix: Imatrix | None = None) -> list[GGMLType]:
    """The types that suit its rows, each once; with its importance also those that need it."""
    kinds = (*WITH_IMPORTANCE, *CANDIDATES) if imatrix and t.name in imatrix.entries else CANDIDATES
    return list(dict.fromkeys(fitting(kind, t.shape[-1]) for kind in kinds))


def measure(
    source: Source,
    planned: Sequence[PlannedTensor],
    imatrix: Imatrix | None = None,
    progress: Callable[[str, int, int], None] | None = None,
) -> dict[str, list[Candidate]]:
    """The candidates of every matrix that `is_free`. progress(tensor, done, total)."""
    free = [t for t in planned if is_free(t)]
    made = {}
    for i, t in enumerate(free):
        if progress:
            progress(t.name, i, len(free))
        kinds = candidates(t, imatrix)
        noise, power = np.zeros(len(kinds)), 0.0
        for x, importance in _samples(source, t, imatrix):
            weight = np.ones(x.shape[1]) if importance is None else importance.astype(np.float64)
            power += float((np.square(x, dtype=np.float64) @ weight).sum())
            for j, kind in enumerate(kinds):
                new = formats.decode(kind, formats.encode(kind, x, importance=importance))
                noise[j] += float((np.square(new - x, dtype=np.float64) @ weight).sum())
        rows = math.prod(t.shape[:-1])
        made[t.name] = [
            Candidate(kind, rows * row_nbytes(kind, t.shape[-1]), n / power if power else 0.0)
            for kind, n in zip(kinds, noise.tolist(), strict=True)
        ]
    return made


def _samples(
    source: Source, t: PlannedTensor, imatrix: Imatrix | None
) -> Iterator[tuple[np.ndarray, np.ndarray | None]]:
    """Rows of one matrix, f32 [row, n], with its importance: of all pieces evenly, about SAMPLE weights in all."""
    n, entry = t.shape[-1], imatrix.entries.get(t.name) if imatrix else None
    importance = entry.importance() if entry else None
    total = math.prod(t.shape[:-1])
    per_matrix = t.shape[-2] if len(t.shape) > 1 else 1
    step = max(1, total * n // SAMPLE)
    first = 0
    for piece in source.pieces(t.name, max(1, (1 << 20) // n)):
        wanted = np.arange(-first % step, piece.rows, step)
        raw = piece.read().reshape(piece.rows, -1)[wanted]
        matrices = (first + wanted) // per_matrix
        for matrix in np.unique(matrices):
            x = formats.decode(t.source, np.ascontiguousarray(raw[matrices == matrix]))
            yield x, importance[matrix] if importance is not None else None
        piece.done()
        first += piece.rows


def solve(
    found: Mapping[str, Sequence[Candidate]], sensitivity: Mapping[str, float], budget: int
) -> dict[str, GGMLType]:
    """The types with the least sum of sensitivity * noise in `budget` bytes. UsageError when nothing is so small."""
    hulls = {name: _hull(options, sensitivity[name]) for name, options in found.items()}
    used = sum(hull[0].nbytes for hull in hulls.values())
    if used > budget:
        raise UsageError(
            f"the matrices need at least {used / 1e6:,.1f} MB, {budget / 1e6:,.1f} MB are left for them. "
            "Give a larger target, or --ssm-type q8_0."
        )

    def fits(more: int, gain: float) -> bool:
        nonlocal used
        used += more
        if used > budget:
            used -= more
            return False
        return True

    return _grown(hulls, sensitivity, fits)


def within(
    found: Mapping[str, Sequence[Candidate]], sensitivity: Mapping[str, float], limit: float
) -> dict[str, GGMLType]:
    """The smallest types whose sum of sensitivity * noise is at most `limit`, or those with the least."""
    hulls = {name: _hull(options, sensitivity[name]) for name, options in found.items()}
    total = sum(hull[0].noise * sensitivity[name] for name, hull in hulls.items())

    def needed(more: int, gain: float) -> bool:
        nonlocal total
        if total <= limit:
            return False
        total -= gain
        return True

    return _grown(hulls, sensitivity, needed)


def divergence(
    found: Mapping[str, Sequence[Candidate]], sensitivity: Mapping[str, float], types: Mapping[str, GGMLType]
) -> float:
    """The sum of sensitivity * noise of these types."""
    noise = {name: next(c.noise for c in found[name] if c.type is kind) for name, kind in types.items()}
    return sum(noise[name] * sensitivity[name] for name in types)


def _grown(
    hulls: Mapping[str, Sequence[Candidate]], sensitivity: Mapping[str, float], take: Callable[[int, float], bool]
) -> dict[str, GGMLType]:
    """From the smallest types the steps up that `take(more bytes, gain)` takes, the best gain of a byte first."""
    chosen = dict.fromkeys(hulls, 0)

    def offer(name: str) -> tuple[float, str] | None:
        """The next step of a matrix, with the negative gain of each byte."""
        hull, i = hulls[name], chosen[name]
        if i + 1 == len(hull):
            return None
        gain = (hull[i].noise - hull[i + 1].noise) * sensitivity[name]
        return -gain / (hull[i + 1].nbytes - hull[i].nbytes), name

    heap = [step for name in hulls if (step := offer(name))]
    heapq.heapify(heap)
    while heap:
        gain, name = heapq.heappop(heap)
        more = hulls[name][chosen[name] + 1].nbytes - hulls[name][chosen[name]].nbytes
        if take(more, -gain * more):
            chosen[name] += 1
            if step := offer(name):
                heapq.heappush(heap, step)
    return {name: hulls[name][i].type for name, i in chosen.items()}


def _hull(options: Sequence[Candidate], sensitivity: float) -> list[Candidate]:
    """Those on the lower convex hull of (bytes, noise), by size."""
    hull: list[Candidate] = []
    for option in sorted(options, key=lambda c: (c.nbytes, c.noise)):
        if hull and option.noise >= hull[-1].noise:
            continue
        while len(hull) > 1 and _slope(hull[-2], option) <= _slope(hull[-2], hull[-1]):
            hull.pop()
        hull.append(option)
    return hull if sensitivity > 0 else hull[:1]


def _slope(a: Candidate, b: Candidate) -> float:
    return (b.noise - a.noise) / (b.nbytes - a.nbytes)


def file_type_of(types: Mapping[str, GGMLType], found: Mapping[str, Sequence[Candidate]]) -> FileType:
    """What to call a file of these types: after the one that takes the most bytes."""
    sizes: Counter[GGMLType] = Counter()
    for name, kind in types.items():
        sizes[kind] += next(c.nbytes for c in found[name] if c.type is kind)
    most = sizes.most_common(1)[0][0]
    return _NAMED.get(most) or FileType[most.name]
