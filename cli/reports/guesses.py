"""`hybrid bench --spec` and `--draft`: timings with guesses, and the options that do not go with them."""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from hybrid.infer.bench.benchmark import BenchOptions
from hybrid.infer.loading.options import LoadOptions
from hybrid.quant.ggml.errors import UsageError

from .. import console
from ..options import text_options
from ..options.guess_options import GuessOptions
from ..options.model_loading import loaded_with, loader
from ..options.stage_options import WorkerOptions

if TYPE_CHECKING:
    from hybrid.infer import LoadedModel
    from hybrid.infer.bench.guess_tests import GuessRow

# parameter -> (option, why it does not apply)
REFUSED = {
    "prompts": ("-p", "prompts are read without guesses. -d is how much of the text comes first"),
    "pairs": ("-pg", "prompts are read without guesses. -d is how much of the text comes first"),
    "parallel": ("-np", "one answer is measured at a time"),
    "profile": ("--profile", "a profile is of passes without guesses"),
    "no_state": ("--no-state", "the costs of a start are not measured with guesses"),
    "no_start": ("--no-start", "the costs of a start are not measured with guesses"),
    "shape": ("--shape", "nobody can guess the tokens of random weights. Give a trained MODEL"),
    "file_type": ("--type", "nobody can guess the tokens of random weights. Give a trained MODEL"),
}


def is_given(ctx: typer.Context, name: str) -> bool:
    """Whether a parameter was given on the command line."""
    return getattr(ctx.get_parameter_source(name), "name", "") == "COMMANDLINE"


def check_given(ctx: typer.Context, guesses: bool) -> None:
    """UsageError: an option that would be ignored, with guesses or without."""
    if not guesses:
        if is_given(ctx, "text_file"):
            raise UsageError("-f is the text that guesses go on from. Add --spec or --draft, or leave it out.")
        return
    for name, (option, why) in REFUSED.items():
        if is_given(ctx, name):
            raise UsageError(f"{option} does not go with --spec and --draft: {why}.")


def measure(
    paths: Sequence[Path],
    options: BenchOptions,
    loading: LoadOptions,
    guessing: GuessOptions,
    text_file: Path | None,
    workers: WorkerOptions,
) -> "list[GuessRow]":
    """Measures all files, one after the other."""
    from hybrid.infer.bench.guess_tests import GuessedText, guess_tests, measure_guesses
    from hybrid.pipeline.models import bundled_prose, resolve

    workers.check_guesses(guessing)
    guess_tests(options)  # raises before a model is loaded
    text = text_options.read_text(text_file or bundled_prose())
    small = None if guessing.draft is None else resolve(guessing.draft, console.SCREEN)
    guessing = replace(guessing, draft=small)
    guessed = GuessedText(text, guessing.spec.value, small)
    rows: list[GuessRow] = []
    for path in paths:
        with _loader(path, loading, guessing, workers) as load, console.ProgressBar(path.name) as progress:
            rows += measure_guesses(load, options, guessed, progress=progress)
    return rows


def _loader(
    path: Path, loading: LoadOptions, guessing: GuessOptions, workers: WorkerOptions
) -> "AbstractContextManager[Callable[..., LoadedModel]]":
    if workers.stages is not None:
        return loader(path, loading, workers)  # guesses n-grams if enabled

    def load(**fields: Any) -> "LoadedModel":
        return loaded_with(path, replace(loading, **fields), guessing)

    return nullcontext(load)
