"""A conversion in parts, for processes that see the checkpoint and the new file: each writes its own ranges.

parts_of(...)  the parts; they can be pickled, and give the same result however often they are done
fill(...)      writes a part, in any process, and returns the checksum of its bytes
`check`        compares the file with the checksums
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from itertools import islice

from hybrid.quant.ggml.errors import CheckpointError, shown
from hybrid.quant.ggml.file_ranges import FileRange
from hybrid.quant.ggml.progress import Progress

from .plan import PreparedConversion
from .stream import constant, encoded, slices

PART_SLICES = 64  # slices of a part: few parts even of the largest checkpoints


@dataclass(frozen=True)
class ConvertPart:
    """Slices `begin` .. `end` - 1 of tensor number `number`, called `name`, and where they are written."""

    number: int
    name: str
    begin: int
    end: int
    place: FileRange


Spread = Callable[[Iterable[ConvertPart]], Iterator[int]]  # `fill` of every part, in their order


def parts_of(prepared: PreparedConversion, places: Mapping[str, FileRange]) -> Iterator[ConvertPart]:
    """The parts of all tensors in order, at most PART_SLICES slices of one tensor each. places: of the new tensors."""
    for number, job in enumerate(prepared.jobs):
        name = job.planned.name
        place, done = places[name], 0
        if job.row.constant is not None:
            yield ConvertPart(number, name, 0, 1, place)
            continue
        numbered = enumerate(slices(job))
        while group := list(islice(numbered, PART_SLICES)):
            begin, nbytes = group[0][0], sum(part.nbytes for _, part in group)
            yield ConvertPart(number, name, begin, begin + len(group), place.part(done, nbytes))
            done += nbytes


def fill(prepared: PreparedConversion, part: ConvertPart, n_threads: int) -> int:
    """Writes a part; returns its CRC-32. HybridError: the file is not visible from here, or cannot be written;
    CheckpointError, UnsupportedError: as in `convert`."""
    job = prepared.jobs[part.number] if part.number < len(prepared.jobs) else None
    if job is None or job.planned.name != part.name:
        raise CheckpointError(f"{shown(prepared.plan.source)} makes no {shown(part.name)} here. Share one checkpoint.")
    with part.place.opened(sync=True) as place:
        if job.row.constant is not None:
            place.write(constant(job))
        else:
            with closing(encoded(islice(slices(job), part.begin, part.end), n_threads)) as stream:
                for data in stream:
                    place.write(data)
    assert place.done == part.place.nbytes, f"{part.name}: {place.done} bytes written, {part.place.nbytes} planned"
    return place.checksum


def check(parts: Sequence[ConvertPart], checksums: Iterable[int], progress: Progress | None = None) -> None:
    """Compares the file with the checksums. progress(tensor, done, total) in bytes of tensors. FormatError: they
    differ."""
    total, done = sum(part.place.nbytes for part in parts), 0
    for part, checksum in zip(parts, checksums, strict=True):
        part.place.check(checksum)
        done += part.place.nbytes
        if progress:
            progress(part.name, done, total)
