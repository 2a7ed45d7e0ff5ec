"""Loading the model of a command: in this process or in stages on workers, with or without guesses.

with loaded_for_answers(model, options, workers, guessing) as model: ...
"""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Unpack

from hybrid.quant.ggml.errors import UsageError, shown

from .. import console
from .cluster_options import cluster_address
from .guess_options import GuessOptions, Spec
from .stage_options import WorkerOptions

if TYPE_CHECKING:
    from hybrid.infer import LoadedModel
    from hybrid.infer.loading.options import LoadFields, LoadOptions
    from hybrid.reporting import Reporter


def loaded(
    model: Path | str | None,
    options: "LoadOptions",
    workers: WorkerOptions,
    **fields: "Unpack[LoadFields]",
) -> "AbstractContextManager[LoadedModel]":
    """The loaded model: divided over the workers with --stages, else in this process."""
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
def loaded_for_answers(
    model: Path | None,
    options: "LoadOptions",
    workers: WorkerOptions,
    guessing: GuessOptions,
    reporter: "Reporter" = console.SCREEN,
) -> "Iterator[LoadedModel]":
    """Like `loaded`, with the guessing that the options ask for. UsageError: a draft model together with --stages."""
    if workers.stages is None:
        with loaded_with(model, options, guessing, reporter) as here:
            yield here
        return
    workers.check_guesses(guessing)
    with loaded(model, options, workers) as far:
        far.runner.guessers.ngrams = guessing.spec is not Spec.NONE
        yield far


def loader(
    path: Path, options: "LoadOptions", workers: WorkerOptions
) -> "AbstractContextManager[Callable[..., LoadedModel]]":
    """A function that loads the model of `path`, any number of times, each time with other fields of `LoadOptions`."""
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


def loaded_with(
    model: Path | None, options: "LoadOptions", guessing: GuessOptions, reporter: "Reporter" = console.SCREEN
) -> "LoadedModel":
    """The model in this process, with its guessing set up. UsageError: --spec mtp, and the file has no head for it."""
    from hybrid.pipeline import models

    if guessing.spec is Spec.MTP and guessing.draft is not None:
        raise UsageError("--spec mtp and --draft: either the model's own head guesses, or a draft does.")
    made = models.load(model, options, draft=guessing.draft, reporter=reporter)
    made.runner.guessers.ngrams = guessing.spec is not Spec.NONE
    if guessing.spec is Spec.MTP:
        try:
            _guess_with_head(made)
        except BaseException:
            made.close()
            raise
    return made


def _guess_with_head(model: "LoadedModel") -> None:
    from hybrid.infer.answers.guessing.head_guesser import head_guesser

    helper = head_guesser(model)
    if helper is None:
        raise UsageError(
            f"--spec mtp: {shown(model.path.name)} has no head that guesses tokens ahead, or only heads "
            "that cannot run here. `hybrid inspect` shows it as T; `hybrid convert --mtp` keeps it."
        )
    model.runner.guessers.helper = helper
