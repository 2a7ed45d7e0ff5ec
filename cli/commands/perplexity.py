"""`hybrid perplexity`: how well a model predicts a text."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from .. import console
from ..options import model_argument, text_options
from ..options.cluster_options import cluster_address
from ..options.groups import takes_groups
from ..options.loading_options import (
    BATCH,
    CHUNK,
    BatchTokens,
    ChunkTokens,
    Lora,
    Precision,
    ThreadOptions,
    chunks_together,
    load_options,
)
from ..options.stage_options import WorkerOptions
from ..reports import choices, divergence, plots
from ..reports.plots import Plot

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hybrid.infer.evaluate.perplexity import PerplexityResult
    from hybrid.infer.evaluate.positions import PositionBucket
    from hybrid.infer.loading.options import LoadOptions

    from ..options.cluster_options import ClusterAddress


@dataclass(frozen=True, eq=False, repr=False)
class Tasks:
    """Options for a file of tasks instead of a text."""

    hellaswag: Annotated[
        bool, typer.Option("--hellaswag", help="Score HellaSwag tasks: -f holds six lines per task.")
    ] = False
    hellaswag_tasks: Annotated[
        int | None, typer.Option("--hellaswag-tasks", min=1, help="Maximum tasks to score. Default: all.")
    ] = None
    winogrande: Annotated[
        bool, typer.Option("--winogrande", help="Score Winogrande tasks: -f holds one task per line, as CSV.")
    ] = False
    winogrande_tasks: Annotated[
        int | None, typer.Option("--winogrande-tasks", min=1, help="Maximum tasks to score. Default: all.")
    ] = None
    multiple_choice: Annotated[
        bool,
        typer.Option("--multiple-choice", help="Score multiple-choice questions: -f is a file of llama.cpp's format."),
    ] = False
    multiple_choice_tasks: Annotated[
        int | None, typer.Option("--multiple-choice-tasks", min=1, help="Maximum tasks to score. Default: all.")
    ] = None

    @property
    def given(self) -> bool:
        """Whether the file holds tasks."""
        return self.hellaswag or self.winogrande or self.multiple_choice

    def wanted(self) -> "choices.Test | None":
        """The test that the options ask for, or None."""
        return choices.wanted(
            {
                "hellaswag": (self.hellaswag, self.hellaswag_tasks),
                "winogrande": (self.winogrande, self.winogrande_tasks),
                "multiple-choice": (self.multiple_choice, self.multiple_choice_tasks),
            }
        )


@takes_groups
def perplexity(
    model: Annotated[Path | None, typer.Argument(metavar="MODEL", help=model_argument.DEFAULT)] = None,
    text: Annotated[
        Path | None, typer.Argument(metavar="FILE", help="Text to predict, as with -f; needs MODEL before it.")
    ] = None,
    file: Annotated[
        Path | None, typer.Option("-f", "--file", help="Text to predict, UTF-8; - reads stdin.", show_default=False)
    ] = None,
    n_ctx: ChunkTokens = CHUNK,
    n_batch: BatchTokens = BATCH,
    chunks: Annotated[int | None, typer.Option(min=1, help="Stop after this many chunks. Default: all.")] = None,
    stride: Annotated[
        int, typer.Option(min=0, help="Tokens from one window to the next, overlapping one; 0: chunks do not overlap.")
    ] = 0,
    by_position: Annotated[
        int | None,
        typer.Option(
            min=1,
            metavar="N",
            help="Print also the perplexity by position: chunks are cut into N equal parts, and each part is "
            "averaged over all chunks.",
        ),
    ] = None,
    kl_divergence_base: Annotated[
        Path | None,
        typer.Option(
            "--kl-divergence-base",
            help="File of the log-probabilities of all tokens. Written, or read with --kl-divergence.",
        ),
    ] = None,
    kl_divergence: Annotated[
        bool,
        typer.Option(
            "--kl-divergence", help="Compare this model with the one that wrote the file of --kl-divergence-base."
        ),
    ] = False,
    *,
    tasks: Tasks,
    plot: Plot = None,
    precision: Precision,
    lora: Lora = None,
    machine: ThreadOptions,
    workers: WorkerOptions,
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
) -> None:
    """Measure how well a model predicts a text.

    The method is llama-perplexity's, so figures can be compared: the text is cut into chunks of -c tokens, and the
    second half of each chunk is scored. Prints running estimates, then `Final estimate: PPL = x +/- y`. Use --exact
    for figures that you publish.

    HellaSwag and multiple choice: the model's answer is the ending whose tokens have the highest mean log-probability
    (acc_norm), as in llama-perplexity. Winogrande: the model's answer is the choice after which the rest of the
    sentence has the highest mean log-probability.

    KL divergence: run the original model with -f and --kl-divergence-base FILE, then the quantized one with
    --kl-divergence-base FILE --kl-divergence. The file format is llama-perplexity's.
    """
    file = text_options.one_of(text, file)
    loading = load_options(machine, precision, lora=lora)
    address = cluster_address(workers.cluster)
    workers.check(machine.pinning, divides=True)
    if workers.stages is not None and (kl_divergence_base or tasks.given):
        raise typer.BadParameter("--stages measures perplexity alone: leave out KL divergence and tasks")
    plot = plots.checked(plot)
    if kl_divergence:
        if kl_divergence_base is None:
            raise typer.BadParameter("Missing option '--kl-divergence-base': the file to compare with")
        if by_position is not None:
            raise typer.BadParameter("--kl-divergence compares token by token: leave out --by-position")
        divergence.compare(
            model, kl_divergence_base, loading, address, n_batch=n_batch, chunks=chunks, plot=plot, as_json=as_json
        )
        return
    if file is None:
        raise typer.BadParameter("Missing option '-f': the file of the text to predict")
    test = tasks.wanted()
    others = {"--stride": stride, "--chunks": chunks, "--by-position": by_position, "--plot": plot}
    given = [name for name, value in others.items() if value]
    if test is not None:
        given += ["--kl-divergence-base"] if kl_divergence_base is not None else []
        if given:
            raise typer.BadParameter(f"--{test.name} scores tasks: leave out {' and '.join(given)}")
        test.score(model, file, loading, address, n_ctx, as_json)
        return
    if kl_divergence_base is not None:
        if given and given != ["--chunks"]:
            unfit = " and ".join(name for name in given if name != "--chunks")
            raise typer.BadParameter(f"--kl-divergence-base writes chunks side by side: leave out {unfit}")
        divergence.write_base(
            model,
            file,
            kl_divergence_base,
            loading,
            address,
            n_ctx=n_ctx,
            n_batch=n_batch,
            chunks=chunks,
            as_json=as_json,
        )
        return
    if plot is not None and by_position is None:
        raise typer.BadParameter("--plot draws perplexity by position or KL divergence: add --by-position N")
    measure(
        model,
        file,
        loading,
        address,
        n_ctx=n_ctx,
        n_batch=n_batch,
        chunks=chunks,
        stride=stride,
        n_buckets=by_position or 0,
        plot=plot,
        as_json=as_json,
        stages=workers.stages,
    )


def measure(
    model: Path | None,
    file: Path,
    loading: "LoadOptions",
    workers: "ClusterAddress | None" = None,
    *,
    n_ctx: int = CHUNK,
    n_batch: int = BATCH,
    chunks: int | None = None,
    stride: int = 0,
    n_buckets: int = 0,
    plot: Path | None = None,
    as_json: bool = False,
    stages: int | None = None,
) -> None:
    """Loads the model, measures and prints; `hybrid demo` uses it also."""
    from ..reports.measured_model import opened

    text = text_options.read_text(file)
    n_seq = chunks_together(n_ctx, n_batch)
    with opened(model, workers, loading, stages, n_ctx=n_ctx + stride // 2, n_seq_max=n_seq) as loaded:
        from hybrid.infer.evaluate.perplexity import perplexity as library

        result = library(
            loaded,
            text,
            n_ctx=n_ctx,
            chunks=chunks,
            stride=stride,
            n_buckets=n_buckets,
            progress=None if as_json else running,
        )
        name = loaded.path.name
    if as_json:
        console.out_json(result)
    else:
        console.out()
        if result.by_position:
            console.out(positions(result.by_position) + "\n")
        console.out(final(result))
    if plot is not None:
        plots.perplexity_by_position(plot, result.by_position, name)


def running(chunk: int, n_chunks: int, ppl: float) -> None:
    """Prints llama-perplexity's running estimate: `[1]27.0357,[2]17.7377,`"""
    console.out(f"[{chunk}]{ppl:.4f},", end="")


def positions(buckets: "Sequence[PositionBucket]") -> str:
    """One line per bucket of positions."""
    rows = [(f"{b.first}-{b.end - 1}", b.n_scored, f"{b.ppl:.4f} +/- {b.stderr:.5f}") for b in buckets]
    return console.table(("tokens before", "scored", "PPL"), rows, "rrl")


def final(result: "PerplexityResult") -> str:
    """llama-perplexity's last line: `Final estimate: PPL = x +/- y`."""
    return f"Final estimate: PPL = {result.ppl:.4f} +/- {result.stderr:.5f}"
