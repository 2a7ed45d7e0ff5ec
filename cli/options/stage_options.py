"""--stages: a model divided over the workers of --cluster, each with some of its layers.

with loaded(model, options, workers, n_seq_max=4) as model: ...   # here, where no --stages was given
"""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Unpack

import typer

from hybrid.quant.ggml.errors import UsageError, shown

from .. import console
from .cluster_options import Cluster, cluster_address
from .guess_options import GuessOptions, Spec, loaded_with
from .loading_options import Pinning

if TYPE_CHECKING:
    from hybrid.infer import LoadedModel
    from hybrid.infer.loading.options import LoadFields, LoadOptions

MOST = 4096  # beyond, a slip
AUTO = 0  # as infer/stages/staged_engine.py has it, which is imported when there are stages


def stages_of(text: str) -> int:
    """N, or AUTO. BadParameter says what it is not."""
    if text == "auto":
        return AUTO
    if not text.isascii() or not text.isdigit() or not 1 <= int(text[:9]) <= MOST:
        raise typer.BadParameter(f"{shown(text)} is neither a number of stages from 1 to {MOST} nor auto.")
    return int(text)


@dataclass(frozen=True, eq=False, repr=False)
class WorkerOptions:
    """Who works instead of this process, and what each has of the model."""

    cluster: Cluster = None
    stages: Annotated[
        int | None,
        typer.Option(
            parser=stages_of,
            metavar="N",
            help="With --cluster: one model over N workers, each with some of its layers, where one machine's memory "
            "is too small; auto: as few as have the memory.",
        ),
    ] = None

    def check(self, pinning: Pinning, *, divides: bool = False) -> None:
        """UsageError: --stages without workers, or, unless the command `divides` its work, workers without it; or what
        is `pinning` here."""
        if self.stages is not None and self.cluster is None:
            raise UsageError("--stages needs --cluster: workers that the layers are divided over.")
        if self.cluster is not None and self.stages is None and not divides:
            raise UsageError(
                "--cluster alone does not help here: add --stages N, which divides the layers of the model."
            )
        pinning.check(self.cluster)

    def check_guesses(self, guessing: GuessOptions) -> None:
        """UsageError: who guesses has to be beside the model."""
        if self.stages is not None and guessing.draft is not None:
            raise UsageError("--draft guesses for a model in this process. Leave out --stages, or use --spec ngram.")
        if self.stages is not None and guessing.spec is Spec.MTP:
            raise UsageError("--spec mtp guesses for a model in this process. Leave out --stages, or use --spec ngram.")


def loaded(
    model: Path | str | None,
    options: "LoadOptions",
    workers: WorkerOptions,
    **fields: "Unpack[LoadFields]",
) -> "AbstractContextManager[LoadedModel]":
    """The model, in stages on the workers or, where no number of them is given, in this process."""
    from hybrid.pipeline import models

    if workers.stages is None:
        return models.load(model, options, reporter=console.SCREEN, **fields)
    address = cluster_address(workers.cluster)
    assert address is not None
    from hybrid.infer.loading.options import merged

    from ..cluster.stages import staged

    return staged(
        models.resolve_for_workers(model, console.SCREEN),
        merged(options, fields),
        address,
        workers.stages,
        console.note,
    )


@contextmanager
def answering(
    model: Path | None, options: "LoadOptions", workers: WorkerOptions, guessing: GuessOptions
) -> "Iterator[LoadedModel]":
    """`loaded`, where answers are drawn, with guesses or without. UsageError: a draft does not go with stages."""
    if workers.stages is None:
        with loaded_with(model, options, guessing) as here:
            yield here
        return
    workers.check_guesses(guessing)
    with loaded(model, options, workers) as far:
        far.runner.guessers.ngrams = guessing.spec is not Spec.NONE
        yield far


def loader(
    path: Path, options: "LoadOptions", workers: WorkerOptions
) -> "AbstractContextManager[Callable[..., LoadedModel]]":
    """What loads the model of a path, any number of times, with fields of `LoadOptions`: see `loaded`."""
    if workers.stages is None:
        return nullcontext(partial(_loaded_here, path, options))
    address = cluster_address(workers.cluster)
    assert address is not None
    from ..cluster import stages as on_workers

    return on_workers.loader(path, options, address, workers.stages, console.note)


def _loaded_here(path: Path, options: "LoadOptions", **fields: "Unpack[LoadFields]") -> "LoadedModel":
    from hybrid.infer import LoadedModel
    from hybrid.pipeline import models

    model = LoadedModel.load(path, options, **fields)
    models.note_numa(model, console.SCREEN)
    return model
