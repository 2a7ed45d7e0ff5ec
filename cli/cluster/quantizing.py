"""`hybrid quantize --cluster`: divides tensors over workers; each writes its own part of the new file."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from hybrid.pipeline.checkpoint_source import CheckpointSource
from hybrid.quant.tensor_parts import FilledPart, Spread, TensorPart, fill

from ..options.cluster_options import ClusterAddress
from .connection import ClusterConnection, connected
from .held_models import HERE
from .ordered import in_order
from .sources import OpenSource, SourceAsked, asked_of, check_everywhere


@contextmanager
def spread(address: ClusterAddress, source: Path | CheckpointSource, n_threads: int) -> Iterator[Spread]:
    """The workers that quantize the parts of `source`; n_threads: per part, 0: one."""
    with connected(address) as connection:
        yield spread_on(connection, source, n_threads)


def spread_on(connection: ClusterConnection, source: Path | CheckpointSource, n_threads: int) -> Spread:
    """As `spread`, on connected workers."""
    asked = asked_of(source)

    def done(parts: Iterable[TensorPart]) -> Iterator[FilledPart]:
        parts = list(parts)
        check_everywhere(connection, asked, {part.place.path for part in parts})
        return in_order(connection, partial(_fill, asked, n_threads or 1), parts)

    return done


def _fill(asked: SourceAsked, n_threads: int, part: TensorPart) -> FilledPart:
    """Quantizes a part, on a worker."""
    return fill(HERE.thing(asked, lambda: OpenSource(asked)).source, part, n_threads)
