"""`hybrid convert --cluster`: divides tensors over workers; each writes its own part of the new file."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from hybrid.convert.plan import PreparedConversion, prepare
from hybrid.convert.tensor_parts import ConvertPart, Spread, fill

from ..options.cluster_options import ClusterAddress
from .connection import connected
from .held_models import HERE
from .ordered import in_order
from .sources import FolderAsked, check_everywhere


@dataclass(frozen=True)
class ConversionAsked:
    """A checkpoint, the type of its matrices, and whether its heads for guessing tokens are converted."""

    source: FolderAsked
    outtype: str
    heads: bool


class OpenConversion:
    """A conversion that this process has planned."""

    def __init__(self, asked: ConversionAsked) -> None:
        self.prepared: PreparedConversion = prepare(
            asked.source.found(), file_type=asked.outtype, with_vocabulary=False, heads=asked.heads
        )

    def close(self) -> None:
        """Does nothing: no file is open between parts."""


@contextmanager
def spread(address: ClusterAddress, source: Path, outtype: str, heads: bool) -> Iterator[Spread]:
    """The workers that convert the parts of `source`."""
    with connected(address) as connection:
        asked = ConversionAsked(FolderAsked.of(source), outtype, heads)

        def done(parts: Iterable[ConvertPart]) -> Iterator[int]:
            parts = list(parts)
            check_everywhere(connection, asked.source, {part.place.path for part in parts})
            return in_order(connection, partial(_fill, asked), parts)

        yield done


def _fill(asked: ConversionAsked, part: ConvertPart) -> int:
    """Converts a part, on a worker."""
    return fill(HERE.thing(asked, lambda: OpenConversion(asked)).prepared, part, 1)
