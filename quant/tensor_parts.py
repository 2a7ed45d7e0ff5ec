"""A quantization in parts, for processes that see the source and the new file: each writes its own ranges.

parts_of(...)  the parts; they can be pickled, and give the same result however often they are done
fill(...)      does a part in some process
`checked`      compares the file with the results, and adds up the errors in one order
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import islice

from .ggml.file_ranges import FileRange
from .ggml.progress import Progress
from .imatrix import Imatrix
from .imatrix_data import InputSums
from .planning import PlannedTensor
from .pool import in_order
from .recoding import ErrorSums, TensorReport, bytes_of, recoded, tasks_of
from .source import Source

PART_TASKS = 64  # tasks of a part: some seconds of the slowest types, and few parts even of the largest models


@dataclass(frozen=True)
class TensorPart:
    """Tasks `begin` .. `end` - 1 of a tensor (see `recoding`), and where their `n_rows` rows are written."""

    tensor: PlannedTensor
    begin: int
    end: int
    place: FileRange
    importance: InputSums | None
    effort: int
    n_rows: int


@dataclass(frozen=True)
class FilledPart:
    """checksum: of the written bytes; sums: of every task, in order."""

    checksum: int
    sums: list[ErrorSums]


Spread = Callable[[Iterable[TensorPart]], Iterator[FilledPart]]  # `fill` of every part, in their order


def parts_of(
    source: Source,
    planned: Iterable[PlannedTensor],
    places: Mapping[str, FileRange],
    imatrix: Imatrix | None,
    effort: int,
) -> Iterator[TensorPart]:
    """The parts of all tensors in order, at most PART_TASKS tasks of one tensor each. places: of the new tensors."""
    for t in planned:
        importance = imatrix.entries.get(t.name) if imatrix else None
        nbytes = bytes_of(t.target, t.shape[-1])  # of a row
        tasks = enumerate(tasks_of(source, t, None, effort))
        while group := list(islice(tasks, PART_TASKS)):
            begin, first, n_rows = group[0][0], group[0][1].first, sum(task.rows.n for _, task in group)
            place = places[t.name].part(first * nbytes, n_rows * nbytes)
            yield TensorPart(t, begin, begin + len(group), place, importance, effort, n_rows)


def fill(source: Source, part: TensorPart, n_threads: int) -> FilledPart:
    """Writes the rows of a part. HybridError: the file is not visible from here, or cannot be written; FormatError: a
    value that the new type cannot represent."""
    tasks = islice(tasks_of(source, part.tensor, part.importance, part.effort), part.begin, part.end)
    sums = []
    with ThreadPoolExecutor(n_threads, thread_name_prefix="quantize") as pool, part.place.opened(sync=True) as place:
        for done in in_order(pool, recoded, tasks, 2 * n_threads):
            assert done.data is not None
            place.write(done.data)
            done.task.rows.done()
            sums.append(done.sums)
    return FilledPart(place.checksum, sums)


def checked(
    parts: Sequence[TensorPart], filled: Iterable[FilledPart], progress: Progress | None = None
) -> Iterator[TensorReport]:
    """Yields the report of every tensor once all of its parts are in the file. progress(tensor, done, total) in bytes
    of the source's tensors. FormatError: the file's bytes differ from the written bytes."""
    total = sum(_source_nbytes(part) for part in parts)
    passed, sums = 0, ErrorSums()
    for i, (part, done) in enumerate(zip(parts, filled, strict=True)):
        part.place.check(done.checksum)
        for one in done.sums:
            sums.merge(one)
        passed += _source_nbytes(part)
        if progress:
            progress(part.tensor.name, passed, total)
        if i + 1 == len(parts) or parts[i + 1].tensor is not part.tensor:
            yield sums.report(part.tensor)
            sums = ErrorSums()


def _source_nbytes(part: TensorPart) -> int:
    return part.n_rows * bytes_of(part.tensor.source, part.tensor.shape[-1])
