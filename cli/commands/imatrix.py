"""`hybrid imatrix`: importance of weights, measured on a text."""

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hybrid.quant.ggml.errors import UsageError, shown

from .. import console
from ..options import model_argument, text_options
from ..options.cluster_options import Cluster, cluster_address
from ..options.groups import takes_groups
from ..options.loading_options import (
    BATCH,
    CHUNK,
    BatchTokens,
    ChunkTokens,
    Exact,
    Precision,
    ThreadOptions,
    chunks_together,
    load_options,
)

if TYPE_CHECKING:
    from hybrid.infer.loading.options import LoadOptions
    from hybrid.quant import Imatrix

    from ..options.cluster_options import ClusterAddress


@takes_groups
def imatrix(
    model: Annotated[
        Path | None, typer.Argument(metavar="MODEL", help=f"{model_argument.WHAT}; best in F32, F16, BF16 or Q8_0.")
    ] = None,
    text: Annotated[
        Path | None, typer.Argument(metavar="FILE", help="Text to measure on, as with -f; needs MODEL before it.")
    ] = None,
    file: Annotated[
        Path | None, typer.Option("-f", "--file", help="Text to measure on, UTF-8; - reads stdin.", show_default=False)
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option(
            "-o",
            "--output",
            help="File to write. Default for a text: MODEL-imatrix.gguf in this folder. A name that ends in .dat gets "
            "llama.cpp's older format, which is not GGUF.",
            show_default=False,
        ),
    ] = None,
    in_file: Annotated[
        list[Path] | None,
        typer.Option("--in-file", help="Importance matrix to add to this one, GGUF or .dat. May be repeated."),
    ] = None,
    n_ctx: ChunkTokens = CHUNK,
    n_batch: BatchTokens = BATCH,
    chunks: Annotated[int | None, typer.Option(min=1, help="Stop after this many chunks. Default: all.")] = None,
    save_every: Annotated[int, typer.Option(min=1, help="Write the file every N chunks.")] = 32,
    resume: Annotated[
        bool,
        typer.Option(
            "--resume", help="Continue the measurement that the output file holds; needs the same model, text and -c."
        ),
    ] = False,
    show_statistics: Annotated[
        bool, typer.Option("--show-statistics", help="Print statistics of every tensor.")
    ] = False,
    exact: Exact = False,
    *,
    machine: ThreadOptions,
    cluster: Cluster = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print statistics as JSON.")] = False,
) -> None:
    """Measure which weights matter, for `quantize --imatrix`.

    Runs the model on a text and computes the mean square of the activations that each column of a weight matrix is
    multiplied with; each expert has its own. The file format is llama.cpp's. Without -f, the files of --in-file are
    added up. After Ctrl-C the last written file stays; --resume continues from it.
    """
    from hybrid.quant import Imatrix

    file = text_options.one_of(text, file)
    if file is None and not in_file:
        raise UsageError("nothing to do: give a text with -f, or files with --in-file.")
    if file is not None and output is None:
        output = default_name(model, resume=resume)
    machine.pinning.check(cluster)
    total = Imatrix()
    for path in in_file or ():
        total.merge(Imatrix.read(path))
    if file is not None:
        assert output is not None
        loading = replace(
            load_options(machine, Precision(exact), n_ctx=n_ctx),
            n_seq_max=chunks_together(n_ctx, n_batch),
        )
        collected = _collected(model, file, output, loading, cluster_address(cluster), chunks, save_every, resume)
        collected.merge(total)
        total = collected
    if output is not None:
        total.write(output)
        matrices = f"{len(total.entries)} matrices, {total.chunk_count} chunks of {total.chunk_size} tokens"
        console.note(f"{output}: {matrices}")
    if show_statistics or as_json:
        _show(total, as_json)


def default_name(model: Path | None, *, resume: bool) -> Path:
    """The file to write if none is named; a note says so. UsageError: it exists, and is not continued."""
    from hybrid.pipeline import models

    name = models.name_of(model).rpartition("/")[2].replace(":", "-")
    found = Path(f"{name}-imatrix.gguf")
    if found.exists() and not resume:
        raise UsageError(f"{shown(found)} exists already. --resume continues it, -o FILE writes another file.")
    console.note(f"the importance matrix is written to {found} (-o FILE: another)")
    return found


def _collected(
    model: Path | None,
    file: Path,
    output: Path,
    loading: "LoadOptions",
    workers: "ClusterAddress | None",
    chunks: int | None,
    save_every: int,
    resume: bool,
) -> "Imatrix":
    """The importance matrix of a text in chunks of loading.n_ctx tokens; saved every `save_every` chunks."""
    from hybrid.pipeline import importance
    from hybrid.quant import Imatrix

    from ..reports.measured_model import opened

    text, n_ctx = text_options.read_text(file), loading.n_ctx
    before = Imatrix()
    if resume and output.exists():
        before = Imatrix.read(output)
        importance.check_continues(before, str(file), n_ctx)
        console.note(f"going on after chunk {before.chunk_count}")
    kept = before.chunk_count > 0

    def save(so_far: Imatrix) -> None:
        nonlocal kept
        so_far.write(output)
        kept = True

    try:
        with (
            opened(model, workers, loading) as loaded,
            console.ProgressBar("measuring", "chunks") as progress,
        ):
            whole = importance.collected(
                loaded,
                text,
                str(file),
                n_ctx,
                before=before,
                chunks=chunks,
                save=save,
                save_every=save_every,
                progress=progress,
            )
    except KeyboardInterrupt as stop:
        if not kept or str(stop):
            raise
        raise KeyboardInterrupt(f"interrupted; --resume goes on after the chunks that are in {output}") from None
    return whole


def _show(matrix: "Imatrix", as_json: bool) -> None:
    """Prints llama-imatrix's statistics; matrices with the largest activations come first."""
    rows = sorted(matrix.statistics(), key=lambda row: -row.total)
    if as_json:
        console.out_json(rows)
        return
    lines = [
        (
            row.name,
            f"{row.total:.2f}",
            f"{row.least:.4f}",
            f"{row.most:.4f}",
            f"{row.mean:.4f}",
            f"{row.deviation:.4f}",
            f"{100 * row.active:.2f} %",
            row.n,
            f"{row.entropy:.4f}",
            f"{100 * row.evenness:.2f} %",
            f"{100 * row.outliers:.2f} %",
            "" if row.similarity is None else f"{row.similarity:.4f}",
        )
        for row in rows
    ]
    headers = (
        "tensor", "sum", "least", "most", "mean", "deviation", "active", "columns", "entropy", "evenness", "outliers",
        "like the layer before",
    )  # fmt: skip
    console.out(console.table(headers, lines, "lrrrrrrrrrrr"))
