"""Multiple-choice tests of `hybrid perplexity`: reads tasks, scores them and prints llama-perplexity's tables."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from .. import console

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from hybrid.infer.evaluate.choices import ScoredTask
    from hybrid.infer.evaluate.hellaswag import HellaSwagResult
    from hybrid.infer.evaluate.multiple_choice import MultipleChoiceResult
    from hybrid.infer.evaluate.parts import Measurable
    from hybrid.infer.evaluate.winogrande import WinograndeResult
    from hybrid.infer.loading.options import LoadOptions

    from ..options.cluster_options import ClusterAddress


@dataclass(frozen=True)
class Test:
    """A requested test: its option without --, and the number of tasks to score (None: all)."""

    name: str
    n_tasks: int | None

    def score(
        self,
        model: Path | None,
        file: Path,
        loading: "LoadOptions",
        workers: "ClusterAddress | None",
        n_ctx: int,
        as_json: bool,
    ) -> None:
        """Reads the file, scores its tasks and prints."""
        TESTS[self.name](file, Loading(model, workers, replace(loading, n_ctx=n_ctx)), self.n_tasks, as_json)


@dataclass(frozen=True)
class Loading:
    """How the tested model is loaded, and the workers that run it."""

    model: Path | None
    workers: "ClusterAddress | None"
    options: "LoadOptions"

    def loaded(self, n_texts: int) -> "AbstractContextManager[Measurable]":
        """The model, with sequences for `n_texts` texts at a time."""
        from hybrid.infer.evaluate.choices import TOGETHER

        from .measured_model import opened

        return opened(self.model, self.workers, self.options, n_seq_max=min(TOGETHER, n_texts))


def wanted(given: Mapping[str, tuple[bool, int | None]]) -> Test | None:
    """The one test whose option was given, or None. given: for each test, whether, and the value of --NAME-tasks."""
    names = [name for name, (asked, _) in given.items() if asked]
    for name, (asked, n_tasks) in given.items():
        if n_tasks is not None and not asked:
            raise typer.BadParameter(f"--{name}-tasks belongs to --{name}")
    if len(names) > 1:
        raise typer.BadParameter(f"--{names[0]} and --{names[1]} read different files: give one of them")
    return Test(names[0], given[names[0]][1]) if names else None


def hellaswag(file: Path, loading: Loading, n_tasks: int | None, as_json: bool) -> None:
    """Scores the first n_tasks HellaSwag tasks of the file (None: all) and prints the table."""
    from hybrid.infer.evaluate import hellaswag as library

    from ..options import text_options

    tasks = library.read_tasks(text_options.read_text(file), text_options.name_of(file))
    tasks = tasks if n_tasks is None else library.some_of(tasks, n_tasks)

    def line(so_far: "HellaSwagResult", _: int) -> None:
        low, high = 100 * so_far.low, 100 * so_far.high
        console.out(f"{so_far.n_tasks}\t{100 * so_far.acc_norm:.8f}%\t[{low:.4f}%, {high:.4f}%]")

    with loading.loaded(library.N_ENDINGS * len(tasks)) as loaded:
        if as_json:
            console.out_json(library.hellaswag(loaded, tasks))
            return
        console.out("task\tacc_norm\t95% confidence interval")
        result = library.hellaswag(loaded, tasks, line)
    _note_shared(result.n_processed, result.n_tokens)


def winogrande(file: Path, loading: Loading, n_tasks: int | None, as_json: bool) -> None:
    """Scores the first n_tasks Winogrande tasks of the file (None: all) and prints the table."""
    from hybrid.infer.evaluate import winogrande as library
    from hybrid.infer.evaluate.choices import some_of

    from ..options import text_options

    tasks = some_of(library.read_winogrande(text_options.read_text(file), text_options.name_of(file)), n_tasks)

    def line(one: "ScoredTask", answer: int, so_far: "WinograndeResult") -> None:
        n, (first, second) = so_far.n_tasks, one.means
        right = tasks[n - 1].gold + 1
        console.out(f"{n}\t{100 * so_far.accuracy:.4f}\t{first:10.6f}  {second:10.6f}  {answer + 1}  {right}")

    with loading.loaded(2 * len(tasks)) as loaded:
        if as_json:
            console.out_json(library.winogrande(loaded, tasks))
            return
        result = library.winogrande(loaded, tasks, line)
    console.out(f"\nFinal Winogrande score({result.n_tasks} tasks): {_percent(result.accuracy, result.stderr)}")
    if result.n_whole:
        console.note(f"in {result.n_whole} tasks little follows the choice, which is scored with it")
    _note_shared(result.n_processed, result.n_tokens)


def multiple_choice(file: Path, loading: Loading, n_tasks: int | None, as_json: bool) -> None:
    """Scores the first n_tasks multiple-choice tasks of the file (None: all) and prints the table."""
    from hybrid.infer.evaluate import multiple_choice as library
    from hybrid.infer.evaluate.choices import some_of, standard_error

    from ..options import text_options

    tasks = some_of(library.read_multiple_choice(text_options.read_bytes(file), text_options.name_of(file)), n_tasks)

    def line(so_far: "MultipleChoiceResult") -> None:
        console.out(f"{so_far.n_tasks}\t{100 * so_far.acc_norm:.8f}")

    with loading.loaded(sum(len(task.answers) for task in tasks)) as loaded:
        if as_json:
            console.out_json(library.multiple_choice(loaded, tasks))
            return
        console.out("task\tacc_norm")
        result = library.multiple_choice(loaded, tasks, line)
    console.out(f"\nFinal result: {_percent(result.acc_norm, result.stderr)}")
    console.out(f"Random chance: {_percent(result.chance, standard_error(result.chance, result.n_tasks))}")
    _note_shared(result.n_processed, result.n_tokens)


TESTS: dict[str, Callable[[Path, Loading, int | None, bool], None]] = {
    "hellaswag": hellaswag,
    "winogrande": winogrande,
    "multiple-choice": multiple_choice,
}


def _percent(share: float, error: float | None) -> str:
    return f"{100 * share:.4f}" + ("" if error is None else f" +/- {100 * error:.4f}")


def _note_shared(n_processed: int, n_tokens: int) -> None:
    console.note(f"{n_processed} of {n_tokens} tokens processed, the rest is shared")
