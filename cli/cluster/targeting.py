"""`hybrid quantize --target-bpw --cluster` and `--max-kld`: workers measure matrices and files."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from hybrid.infer.stages.worker_fit import FileAsked, ModelAsked, find
from hybrid.pipeline.target import ProbedCopy, Probing
from hybrid.quant import Imatrix, PlannedTensor
from hybrid.quant.ggml.progress import Progress
from hybrid.quant.target import Candidate, is_free, measure
from hybrid.quant.tensor_parts import Spread

from ..options.cluster_options import ClusterAddress
from .connection import ClusterConnection, connected
from .held_models import HERE
from .measuring import ClusterModel, held
from .ordered import in_order
from .quantizing import spread_on
from .sources import OpenSource, check_everywhere

SHARE = 8  # matrices that a worker measures per pass of the original


@dataclass(frozen=True)
class _CopyAsked:
    """A copy of a file that workers change."""

    file: FileAsked
    n_threads: int

    def made(self) -> ProbedCopy:
        """The copy, in the worker's own folder, which Dask removes if the worker is killed."""
        from distributed import get_worker

        from hybrid.infer import LoadedModel

        return ProbedCopy(find(self.file), self.n_threads, LoadedModel.load, Path(get_worker().local_directory))


class TargetWorkers:
    """Implements `pipeline.target.Elsewhere`. n_threads: per process, 0: see `connected`."""

    def __init__(self, connection: ClusterConnection, path: Path, n_threads: int) -> None:
        self._connection, self._path, self._file = connection, path, FileAsked.of(path)
        self._n_threads = n_threads or 1  # for work without a model
        check_everywhere(connection, self._file, [])

    def errors(
        self, planned: Sequence[PlannedTensor], imatrix: Imatrix | None, effort: int, progress: Progress
    ) -> dict[str, list[Candidate]]:
        """See `Elsewhere.errors`."""
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

    def spread(self) -> Spread:
        """The workers that quantize the file's parts."""
        return spread_on(self._connection, self._path, self._n_threads)

    @contextmanager
    def model(self, path: Path, n_ctx: int, n_seq_max: int) -> Iterator[ClusterModel]:
        """The model of a file in the shared folder. Afterwards no worker has it open."""
        from hybrid.infer import LoadOptions

        asked = ModelAsked.of(path, LoadOptions(n_ctx=n_ctx, n_seq_max=n_seq_max))
        with held(self._connection, path, asked) as model:
            yield model
        self._connection.hold(None)


def _only(imatrix: Imatrix | None, tensors: Sequence[PlannedTensor]) -> Imatrix | None:
    """The importance of some tensors only."""
    if imatrix is None:
        return None
    return Imatrix({t.name: imatrix.entries[t.name] for t in tensors if t.name in imatrix.entries})


@contextmanager
def measuring(address: ClusterAddress, path: Path, n_threads: int) -> Iterator[TargetWorkers]:
    """The workers that measure the effect of types on a file; n_threads: per process, 0: one; for models see
    `connected`."""
    with connected(address, n_threads=n_threads) as connection:
        yield TargetWorkers(connection, path, n_threads)


def _errors(
    file: FileAsked, n_threads: int, effort: int, part: tuple[PlannedTensor, Imatrix | None]
) -> list[Candidate]:
    """Measures matrices, on a worker."""
    t, imatrix = part
    source = HERE.thing(file, lambda: OpenSource(file)).source
    return measure(source, [t], imatrix, None, n_threads, effort)[t.name]


def _divergences(
    asked: _CopyAsked, text: str, effort: int, part: tuple[Sequence[PlannedTensor], Imatrix | None]
) -> list[tuple[str, float]]:
    """Measures divergences, on a worker, which changes its copy for one part at a time."""
    tensors, imatrix = part
    with HERE.lock_of(("used", asked)):
        copy = HERE.thing(asked, asked.made)
        return list(copy.divergences(Probing(text, effort, imatrix), tensors))
