"""Chooses the best type for every matrix within a size.

The effect of a type on a matrix is measured as noise: the squares of its errors, weighted by importance, divided by the
weighted squares of the weights; that is the relative noise of its product. The sensitivity of a matrix is the KL
divergence of predictions per noise, measured by quantizing that matrix alone; to first order divergence is proportional
to noise, and adds up over matrices. The types with the smallest sum within the size are found on the lower convex hulls
of (bytes, divergence) of all matrices.

A type that makes all weights a little larger or smaller does more harm than its noise says (IQ3_S does so by 2 %: with
`effort` 0 the KL divergence of chosen types is up to a quarter higher); `refit` removes that.
"""

import heapq
import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np

from .ggml.cpus import cpus
from .ggml.mixes import fitting
from .ggml.progress import Progress
from .ggml.types import FileType, GGMLType, row_nbytes
from .imatrix import Imatrix
from .planning import PlannedTensor, check_finite
from .policy import Reason
from .pool import in_order
from .refit import refit
from .source import RowSlice, Source

CANDIDATES = tuple(GGMLType[name] for name in ("Q2_K", "Q3_K", "IQ4_XS", "Q4_K", "Q5_K", "Q6_K", "Q8_0"))
WITH_IMPORTANCE = tuple(GGMLType[name] for name in ("IQ2_XXS", "IQ2_XS", "IQ2_S", "IQ3_XXS", "IQ3_S"))
# The one that sensitivity is measured with: enough noise to see, little enough to be proportional.
PROBE = GGMLType.Q4_K
SAMPLE = 1 << 19  # weights of a matrix that are looked at
BLOCK = 1 << 17  # of these at a time, by one thread
_NAMED = {
    GGMLType.IQ2_S: FileType.IQ2_M,
    GGMLType.Q3_K: FileType.Q3_K_M,
    GGMLType.Q4_K: FileType.Q4_K_M,
    GGMLType.Q5_K: FileType.Q5_K_M,
    GGMLType.MXFP4: FileType.MXFP4_MOE,
}


@dataclass(frozen=True)
class Candidate:
    """A type for a matrix: its size and its noise."""

    type: GGMLType
    nbytes: int
    noise: float


def is_free(t: PlannedTensor) -> bool:
    """Whether a type may be chosen for this tensor: a matrix for which neither the user nor a rule has set one."""
    return t.reason in (Reason.ASKED, Reason.OUTPUT, Reason.RECIPE, Reason.SHAPE)


def candidates(t: PlannedTensor, imatrix: Imatrix | None = None) -> list[GGMLType]:
    """The types that suit its rows; types that need importance only if there is any."""
    kinds = (*WITH_IMPORTANCE, *CANDIDATES) if imatrix and t.name in imatrix.entries else CANDIDATES
    return list(dict.fromkeys(fitting(kind, t.shape[-1]) for kind in kinds))


@dataclass(frozen=True, eq=False)
class _Sample:
    """Every `step`-th row of a slice of one or several matrices; the slice begins with row `first` of all."""

    tensor: PlannedTensor
    rows: RowSlice
    first: int
    step: int
    importance: np.ndarray | None
    kinds: Sequence[GGMLType]
    effort: int


def measure(
    source: Source,
    planned: Sequence[PlannedTensor],
    imatrix: Imatrix | None = None,
    progress: Progress | None = None,
    n_threads: int = 0,
    effort: int = 0,
) -> dict[str, list[Candidate]]:
    """The candidates of every matrix that `is_free`, with the noise of `quantize` at this effort.

    progress(tensor, done, total). n_threads = 0: all cores; the result does not depend on it. FormatError names a row
    with NaN or infinite values.
    """
    free = [t for t in planned if is_free(t)]
    kinds = {t.name: candidates(t, imatrix) for t in free}
    sums = {t.name: np.zeros(1 + len(kinds[t.name])) for t in free}
    n_threads = n_threads or cpus()
    pool = ThreadPoolExecutor(n_threads, thread_name_prefix="measure")
    try:
        begun = ""
        samples = _samples(source, free, kinds, imatrix, effort)
        for sample, measured in in_order(pool, _measured, samples, 2 * n_threads):
            name = sample.tensor.name
            if progress and name != begun:
                begun = name
                progress(name, list(kinds).index(name), len(free))
            sums[name] += measured
    finally:
        pool.shutdown(cancel_futures=True)
    choices = {}
    for t in free:
        power, *noise = sums[t.name].tolist()
        n_rows = math.prod(t.shape[:-1])
        choices[t.name] = [
            Candidate(kind, n_rows * row_nbytes(kind, t.shape[-1]), n / power if power else 0.0)
            for kind, n in zip(kinds[t.name], noise, strict=True)
        ]
    return choices


def _samples(
    source: Source,
    tensors: Iterable[PlannedTensor],
    kinds: Mapping[str, Sequence[GGMLType]],
    imatrix: Imatrix | None,
    effort: int,
) -> Iterator[_Sample]:
    """Evenly spaced rows of every matrix, about SAMPLE weights each, BLOCK at a time."""
    for t in tensors:
        entry = imatrix.entries.get(t.name) if imatrix else None
        importance = entry.importance() if entry else None
        step = max(1, math.prod(t.shape) // SAMPLE)
        first = 0
        for part in source.slices(t.name, max(1, step * BLOCK // t.shape[-1])):
            yield _Sample(t, part, first, step, importance, kinds[t.name], effort)
            first += part.n


def _measured(sample: _Sample) -> tuple[_Sample, np.ndarray]:
    """f64: the weighted squares of the weights, and of the errors of each type. Runs on a pool thread."""
    from .ggml.kernels import coding  # imports numba

    t, sums = sample.tensor, np.zeros(1 + len(sample.kinds))
    n, per_matrix = t.shape[-1], t.shape[-2] if len(t.shape) > 1 else 1
    wanted = np.arange(-sample.first % sample.step, sample.rows.n, sample.step)
    raw = sample.rows.read().reshape(sample.rows.n, -1)[wanted]
    sample.rows.done()
    matrices = (sample.first + wanted) // per_matrix
    for matrix in np.unique(matrices):
        stored = np.ascontiguousarray(raw[matrices == matrix])
        importance = sample.importance[matrix] if sample.importance is not None else None
        weights = np.ones(n) if importance is None else importance.astype(np.float64)
        x = coding.decode(t.source, stored, np.empty((len(stored), n), np.float32))
        check_finite(t, x, sample.first + wanted[matrices == matrix])
        new = np.empty_like(x)
        sums[0] += _weighted_squares(x, weights)
        for j, kind in enumerate(sample.kinds):
            data = np.empty((len(x), row_nbytes(kind, n)), np.uint8)
            coding.encode(kind, x, data, importance)
            if sample.effort:
                refit(kind, x, data, importance)
            sums[1 + j] += _weighted_squares(coding.decode(kind, data, new) - x, weights)
    return sample, sums


def _weighted_squares(x: np.ndarray, weights: np.ndarray) -> float:
    # not `@`: BLAS may split the sum among its own threads
    return float((np.square(x, dtype=np.float64).sum(axis=0) * weights).sum())


def solve(
    choices: Mapping[str, Sequence[Candidate]], sensitivity: Mapping[str, float], budget: int
) -> dict[str, GGMLType]:
    """The types with the smallest sum of sensitivity * noise within `budget` bytes; the smallest types if even they
    exceed it."""
    hulls = {name: _hull(options, sensitivity[name]) for name, options in choices.items()}
    used = sum(hull[0].nbytes for hull in hulls.values())

    def fits(more: int, gain: float) -> bool:
        nonlocal used
        used += more
        if used > budget:
            used -= more
            return False
        return True

    return _grown(hulls, sensitivity, fits)


def solve_whole(
    choices: Mapping[str, Sequence[Candidate]],
    sensitivity: Mapping[str, float],
    most: int,
    nbytes_of: Callable[[Mapping[str, GGMLType]], int],
) -> dict[str, GGMLType]:
    """As `solve`, for a limit `most` on bytes counted by `nbytes_of(types)`, if any types satisfy it.

    nbytes_of grows with the matrices, and may count more than `choices` knows: metadata, padding, parts.
    """
    least = solve(choices, sensitivity, 0)
    matrices = sum(c.nbytes for name, kind in least.items() for c in choices[name] if c.type is kind)
    budget = most - (nbytes_of(least) - matrices)
    while (types := solve(choices, sensitivity, budget)) != least:
        over = nbytes_of(types) - most
        if over <= 0:
            break
        budget -= over
    return types


def within(
    choices: Mapping[str, Sequence[Candidate]], sensitivity: Mapping[str, float], limit: float
) -> dict[str, GGMLType]:
    """The smallest types whose sum of sensitivity * noise is at most `limit`; if no types reach it, the types with the
    smallest sum."""
    hulls = {name: _hull(options, sensitivity[name]) for name, options in choices.items()}
    total = sum(hull[0].noise * sensitivity[name] for name, hull in hulls.items())

    def needed(more: int, gain: float) -> bool:
        nonlocal total
        if total <= limit:
            return False
        total -= gain
        return True

    return _grown(hulls, sensitivity, needed)


def divergence(
    choices: Mapping[str, Sequence[Candidate]], sensitivity: Mapping[str, float], types: Mapping[str, GGMLType]
) -> float:
    """The sum of sensitivity * noise of these types."""
    noise = {name: next(c.noise for c in choices[name] if c.type is kind) for name, kind in types.items()}
    return sum(noise[name] * sensitivity[name] for name in types)


def _grown(
    hulls: Mapping[str, Sequence[Candidate]], sensitivity: Mapping[str, float], take: Callable[[int, float], bool]
) -> dict[str, GGMLType]:
    """Starts with the smallest types and takes the steps to larger types that `take(more bytes, gain)` accepts, the
    best gain per byte first."""
    chosen = dict.fromkeys(hulls, 0)

    def offer(name: str) -> tuple[float, str] | None:
        """The next step of a matrix, with its negative gain per byte."""
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
    """The candidates on the lower convex hull of (bytes, noise), by size."""
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


def file_type_of(types: Mapping[str, GGMLType], choices: Mapping[str, Sequence[Candidate]]) -> FileType:
    """The file type to state, by the type with the most bytes."""
    sizes: Counter[GGMLType] = Counter()
    for name, kind in types.items():
        sizes[kind] += next(c.nbytes for c in choices[name] if c.type is kind)
    most = sizes.most_common(1)[0][0]
    return _NAMED.get(most) or FileType[most.name]
