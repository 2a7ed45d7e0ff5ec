"""A model that the workers of a cluster measure, with the interface of a model in this process."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from hybrid.infer.evaluate.parts import ModelFacts, SpreadModel
from hybrid.infer.loading.model_file import fitting_tokenizer
from hybrid.infer.stages.worker_fit import ModelAsked
from hybrid.quant.ggml.errors import Remedy, UsageError
from hybrid.quant.ggml.reader import GGUFFile
from hybrid.quant.ggml.split import open_gguf

from ..options.cluster_options import ClusterAddress
from .connection import ClusterConnection, connected
from .held_models import whole
from .ordered import in_order

if TYPE_CHECKING:
    from hybrid.infer import LoadedModel, LoadOptions

P = TypeVar("P")
R = TypeVar("R")


class ClusterModel(SpreadModel):
    """A model that every worker of a connection holds."""

    def __init__(self, connection: ClusterConnection, asked: ModelAsked, facts: ModelFacts, gguf: GGUFFile) -> None:
        super().__init__(facts, gguf, fitting_tokenizer(gguf, facts.n_vocab))
        self._connection, self._asked = connection, asked

    def each(self, function: "Callable[[LoadedModel, P], R]", parts: Iterable[P]) -> Iterator[R]:
        return in_order(self._connection, partial(_on_model, self._asked, function), parts, alone=True)


@contextmanager
def spread(address: ClusterAddress, path: Path, options: "LoadOptions") -> Iterator[ClusterModel]:
    """The model, loaded with `options` by all workers of `address`; n_threads = 0: see `connected`.

    UsageError: no context length is given. ClusterError: there are no workers, or one does not fit.
    """
    if not options.n_ctx:
        raise UsageError(
            "workers of a cluster need to know how long a context is, to have the same one.",
            remedy=Remedy.LARGER_CONTEXT,
        )
    asked = ModelAsked.of(path, options)
    with connected(address, n_threads=options.n_threads) as connection, held(connection, path, asked) as model:
        yield model


@contextmanager
def held(connection: ClusterConnection, path: Path, asked: ModelAsked) -> Iterator[ClusterModel]:
    """The model, as the only thing that the workers of a connection hold. n_threads: see `connected`."""
    asked = replace(asked, options=replace(asked.options, n_threads=0))
    with open_gguf(path) as gguf:
        connection.hold(asked)
        (facts,) = in_order(connection, partial(_on_model, asked, _facts), [path])
        yield ClusterModel(connection, asked, facts, gguf)


def _on_model(asked: ModelAsked, function: "Callable[[LoadedModel, P], R]", part: P) -> R:
    """Applies `function` to a part, on a worker."""
    with whole(asked) as model:
        return function(model, part)


def _facts(model: "LoadedModel", path: Path) -> ModelFacts:
    """Facts about the model. path: the client's file, which results name."""
    return replace(ModelFacts.of(model), path=path)
