"""`hybrid quantize --target-bpw --cluster`: errors and sensitivities of matrices, measured by workers."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from hybrid.quant import Imatrix, PlannedTensor
from hybrid.quant.ggml.progress import Progress
from hybrid.quant.target import Candidate, is_free, measure

from ..chains.target import ProbedCopy, Probing
from ..options.cluster import ClusterAddress
from .connection import Connection, connected
from .fit import FileAsked, find
from .holding import HERE
from .ordered import in_order
from .sources import OpenSource, check_everywhere

SHARE = 8  # matrices that a worker measures beside one pass of the original


@dataclass(frozen=True)
class _CopyAsked:
    """A copy of a file, to be changed."""

    file: FileAsked
    n_threads: int

    def made(self) -> ProbedCopy:
        from hybrid.infer import Model

        return ProbedCopy(find(self.file), self.n_threads, Model.load)


class Workers:
    """Implements `chains.target.Elsewhere`."""

    def __init__(self, connection: Connection, file: FileAsked, n_threads: int) -> None:
        self._connection, self._file, self._n_threads = connection, file, n_threads

    def errors(
        self, planned: Sequence[PlannedTensor], imatrix: Imatrix | None, effort: int, progress: Progress
    ) -> dict[str, list[Candidate]]:
        free = [t for t in planned if is_free(t)]
        parts = [(t, _only(imatrix, [t])) for t in free]
        choices: dict[str, list[Candidate]] = {}
        found = in_order(self._connection, partial(_errors, self._file, self._n_threads, effort), parts)
        for t, candidates in zip(free, found, strict=True):
            progress(t.name, len(choices), len(free))
            choices[t.name] = candidates
        return choices

    def divergences(self, probing: Probing, tensors: Sequence[PlannedTensor]) -> Iterator[tuple[str, float]]:
        copy = _CopyAsked(self._file, self._n_threads)
        shares = [tensors[begin : begin + SHARE] for begin in range(0, len(tensors), SHARE)]
        parts = ((share, _only(probing.imatrix, share)) for share in shares)
        function = partial(_divergences, copy, probing.text, probing.effort)
        for found in in_order(self._connection, function, parts, alone=True):
            yield from found


def _only(imatrix: Imatrix | None, tensors: Sequence[PlannedTensor]) -> Imatrix | None:
    """What it says of some tensors."""
    if imatrix is None:
        return None
    return Imatrix({t.name: imatrix.entries[t.name] for t in tensors if t.name in imatrix.entries})


@contextmanager
def measuring(address: ClusterAddress, path: Path, n_threads: int) -> Iterator[Workers]:
    """Who measures the matrices of a file; n_threads: of each process, 0: one."""
    with connected(address) as connection:
        file = FileAsked.of(path)
        check_everywhere(connection, file, [])
        yield Workers(connection, file, n_threads or 1)


def _errors(
    file: FileAsked, n_threads: int, effort: int, part: tuple[PlannedTensor, Imatrix | None]
) -> list[Candidate]:
    """On a worker."""
    t, imatrix = part
    source = HERE.thing(file, lambda: OpenSource(file)).source
    return measure(source, [t], imatrix, None, n_threads, effort)[t.name]


def _divergences(
    asked: _CopyAsked, text: str, effort: int, part: tuple[Sequence[PlannedTensor], Imatrix | None]
) -> list[tuple[str, float]]:
    """On a worker, which changes its copy for one part at a time."""
    tensors, imatrix = part
    with HERE.lock_of(("used", asked)):
        copy = HERE.thing(asked, asked.made)
        return list(copy.divergences(Probing(text, effort, imatrix), tensors))
