"""`hybrid quantize`: the same model in fewer bits per weight."""

import gc
import math
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hybrid.pipeline import models
from hybrid.quant import Options, SsmType
from hybrid.quant.ggml.byte_sizes import UNITS, parse_size
from hybrid.quant.ggml.errors import UsageError, shown
from hybrid.quant.ggml.types import ValueType
from hybrid.quant.policy import type_named

from .. import console
from ..options import model_argument, text_options
from ..options.cluster_options import Cluster, cluster_address
from ..options.groups import takes_groups
from ..options.loading_options import Threads
from ..reports import plots
from ..reports.plots import Plot
from .gguf import SPLIT_HELP, max_bytes

if TYPE_CHECKING:
    from collections.abc import Sequence
    from contextlib import AbstractContextManager

    from hybrid.infer.evaluate.kl_statistics import MeanWithError
    from hybrid.pipeline.checkpoint_source import CheckpointSource
    from hybrid.pipeline.max_kld import TypeChoice
    from hybrid.pipeline.target import Elsewhere, Measuring
    from hybrid.quant import Imatrix, PlannedTensor, QuantizeReport
    from hybrid.quant.tensor_parts import Spread

    from ..options.cluster_options import ClusterAddress

_KINDS = {"int": ValueType.UINT32, "float": ValueType.FLOAT32, "bool": ValueType.BOOL, "str": ValueType.STRING}


@dataclass(frozen=True, eq=False, repr=False)
class Types:
    """Which types matrices get."""

    ssm_type: Annotated[
        SsmType,
        typer.Option(
            help="Small projections of recurrences (ssm_x, ssm_dt, low-rank ssm_f); like-llama: like any weight."
        ),
    ] = Options.ssm_type
    pure: Annotated[bool, typer.Option("--pure", help="One type for all matrices, no mix.")] = Options.pure
    tensor_type: Annotated[
        list[str] | None,
        typer.Option(metavar="REGEX=TYPE", help="A type for the matrices whose names match; may be repeated."),
    ] = None
    output_tensor_type: Annotated[str | None, typer.Option(metavar="TYPE", help="Of the output matrix.")] = None
    token_embedding_type: Annotated[str | None, typer.Option(metavar="TYPE", help="Of the embedding.")] = None
    leave_output_tensor: Annotated[bool, typer.Option("--leave-output-tensor", help="Keep output.weight as it is.")] = (
        Options.leave_output
    )

    def options(self) -> Options:
        """UsageError: there is no such type."""
        output, embedding = self.output_tensor_type, self.token_embedding_type
        return Options(
            ssm_type=self.ssm_type,
            pure=self.pure,
            tensor_types=tuple(_tensor_type(text) for text in self.tensor_type or ()),
            output_type=type_named(output, "--output-tensor-type") if output else None,
            embedding_type=type_named(embedding, "--token-embedding-type") if embedding else None,
            leave_output=self.leave_output_tensor,
        )


@dataclass(frozen=True, eq=False, repr=False)
class Importance:
    """Which weights matter."""

    imatrix: Annotated[
        Path | None, typer.Option(help="Importance matrix, from hybrid imatrix or llama-imatrix: smaller errors.")
    ] = None
    include_weights: Annotated[
        list[str] | None, typer.Option(metavar="TEXT", help="Use the importance only of names with this in them.")
    ] = None
    exclude_weights: Annotated[
        list[str] | None, typer.Option(metavar="TEXT", help="Do not use the importance of these.")
    ] = None

    def read(self) -> "Imatrix | None":
        """UsageError: there is nothing to choose from."""
        include, exclude = self.include_weights or (), self.exclude_weights or ()
        if self.imatrix is None:
            if include or exclude:
                raise UsageError("--include-weights and --exclude-weights choose from an --imatrix. Give one.")
            return None
        from hybrid.quant import Imatrix

        return Imatrix.read(self.imatrix).chosen(include, exclude)


@takes_groups
def quantize(
    source: Annotated[
        Path, typer.Argument(metavar="IN", help=f"{model_argument.WHAT}; GGUF best in F32, F16 or BF16.")
    ],
    output: Annotated[Path, typer.Argument(metavar="OUT", help="GGUF file to write.")],
    target: Annotated[
        str | None,
        typer.Argument(metavar="TYPE", help="Q4_K_M, Q5_K_S, Q6_K, Q8_0, IQ4_XS, ... as llama-quantize has them."),
    ] = None,
    target_bpw: Annotated[
        float | None,
        typer.Option(min=1, help="Instead of TYPE: the best type for every matrix in at most so many bits per weight."),
    ] = None,
    target_size: Annotated[
        str | None, typer.Option(metavar="SIZE", help=f"The same in a file of at most that size, all told; {UNITS}.")
    ] = None,
    max_kld: Annotated[
        float | None,
        typer.Option(
            metavar="NATS",
            min=0,
            help="The smallest file whose predictions stay within this mean KL divergence of IN's, on the text of -f.",
        ),
    ] = None,
    file: Annotated[
        Path | None,
        typer.Option("-f", "--file", help="With --target-* or --max-kld: text to measure on how much matrices matter."),
    ] = None,
    *,
    types: Types,
    importance: Importance,
    effort: Annotated[
        int | None,
        typer.Option(
            min=0,
            max=1,
            help="0: llama-quantize's bytes. 1: smaller errors at the same size, slower. Default: 0 with TYPE, else 1.",
            show_default=False,
        ),
    ] = None,
    allow_requantize: Annotated[
        bool, typer.Option("--allow-requantize", help="Accept a file that is quantized already; quality suffers.")
    ] = False,
    override_kv: Annotated[
        list[str] | None,
        typer.Option(metavar="KEY=TYPE:VALUE", help="Set metadata; TYPE is int, float, bool or str. May be repeated."),
    ] = None,
    keep_split: Annotated[
        bool, typer.Option("--keep-split", help="As many files as IN has parts: OUT-00001-of-00003.gguf, ...")
    ] = False,
    split_max_size: Annotated[str | None, typer.Option(metavar="SIZE", help=SPLIT_HELP)] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print the type and size every tensor would get; write nothing.")
    ] = False,
    plot: Plot = None,
    threads: Threads = 0,
    cluster: Cluster = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the report as JSON.")] = False,
) -> None:
    """Store the weights of a model in fewer bits.

    State-space parameters (ssm_a, ssm_d, ssm_conv1d), norms, biases and routers stay in f32. The report names every
    tensor with its type before and after, bits per weight, and the error that quantization made: root mean square
    over that of the weights, 1 - cosine, and the row it hit worst.
    """
    gc.set_threshold(200_000)  # to load the kernels makes that many objects, and no garbage
    from hybrid.quant import file_nbytes, plan
    from hybrid.quant import quantize as library

    options = types.options()
    if keep_split and split_max_size:
        raise UsageError("--keep-split and --split-max-size contradict each other. Give one of them.")
    if (target, target_bpw, target_size, max_kld).count(None) != 3:
        raise UsageError("give one of TYPE, --target-bpw, --target-size and --max-kld.")
    if file is not None and target is not None:
        raise UsageError("-f is for --target-bpw, --target-size and --max-kld, which choose by it. Leave it out.")
    if max_kld is not None and file is None:
        raise UsageError("--max-kld measures on a text. Give one with -f.")
    workers = cluster_address(cluster)
    plot = plots.checked(plot)
    if plot is not None and dry_run:
        raise UsageError("--plot draws the errors of what was quantized: leave out --dry-run.")
    imatrix = importance.read()
    found = models.source(source, console.SCREEN)
    checkpoint = _checkpoint(found)
    text = text_options.read_text(file) if file is not None else None
    # a checkpoint is quantized as it is; what is measured, and what another folder holds, is a GGUF file
    path = models.resolve(found, console.SCREEN) if target is None or (found.is_dir() and not checkpoint) else found
    whole = checkpoint or path
    how: dict[str, Any] = {
        "imatrix": imatrix,
        "metadata": dict(_pair(text) for text in override_kv or ()),
        "allow_requantize": allow_requantize,
        "keep_split": keep_split,
        "split_max_size": max_bytes(split_max_size),
    }
    divergence = None
    if target is not None:
        effort = effort or 0
    else:
        from hybrid.pipeline.target import EFFORT, Measuring, Target, choose

        effort = EFFORT if effort is None else effort
        size = parse_size(target_size, "--target-size") if target_size is not None else None
        with measured_over(workers, path, threads) as elsewhere:
            measuring = Measuring(options, imatrix, allow_requantize, effort, threads, elsewhere, console.SCREEN)
            if max_kld is not None:
                assert text is not None
                folder = output.parent if workers is not None else None  # they are to write there, too
                target, options, divergence = _within_divergence(path, text, max_kld, measuring, folder)
            else:
                file_size = lambda kind, chosen: file_nbytes(whole, kind, options=chosen, **how)
                kind, options = choose(path, text, Target(size, target_bpw), file_size, measuring)
                target = kind.name
    if dry_run:
        planned = plan(whole, target, options=options, imatrix=imatrix, allow_requantize=allow_requantize)
        if as_json:
            console.out_json(planned)
        else:
            show(planned)
            console.out(f"\n{total(planned)}; nothing written")
        return
    with spread_over(workers, whole, threads) as spread, console.ProgressBar("quantizing", "bytes") as progress:
        report = library(
            whole, output, target, n_threads=threads, options=options, effort=effort, **how, progress=progress,
            spread=spread,
        )  # fmt: skip
    show_report(report, divergence, max_kld, as_json)
    if plot is not None and not plots.quantization_errors(
        plot, report.rows, f"{output.name} ({report.file_type.name})"
    ):
        console.note(f"no matrix was quantized: there is nothing to draw in {plot}")


def _within_divergence(
    path: Path, text: str, most: float, how: "Measuring", folder: Path | None
) -> "tuple[str, Options, MeanWithError]":
    """File type and options for --max-kld, and what the file diverges."""
    from hybrid.pipeline.max_kld import OutOfReachError, choose

    try:
        choice = choose(path, text, most, how, tried=lambda choice: show_trial(choice, most), folder=folder)
    except OutOfReachError as err:
        raise UsageError(f"--max-kld {most:g}: {err}") from err
    return choice.file_type.name, choice.options, choice.kld


def show_report(
    report: "QuantizeReport", divergence: "MeanWithError | None", most: float | None, as_json: bool
) -> None:
    """What was written; divergence: of a file made for --max-kld, which was to be at most `most`."""
    if as_json:
        rows = [{**console.plain(row), "bits_per_weight": row.bits_per_weight} for row in report.rows]
        more = {"kl_divergence": console.plain(divergence)} if divergence else {}
        bits = {"bits_per_weight": report.bits_per_weight}
        console.out_json({**console.plain(report), **bits, **more, "tensors": rows})
        return
    show(report.rows)
    console.out(f"\n{summary(report)}")
    if divergence:
        console.out(f"KL divergence on the text: {divergence.value:.5f} ± {divergence.error:.5f}, at most {most:g}")


def show(rows: "Sequence[PlannedTensor]") -> None:
    """One line per tensor; errors are relative to the size of the weights."""
    lines = []
    for t in rows:
        kinds = f"{t.source.name} -> {t.target.name}" if t.source is not t.target else t.source.name
        name, shape = console.one_line(t.name), "x".join(map(str, t.shape))
        bits = f"{t.bits_per_weight:.2f}"
        lines.append((name, shape, kinds, bits, console.size(t.nbytes), f"{_errors(t)}{t.reason.value}"))
    errors = f"{'error':>7}  {'1 - cos':>7}  {'worst row':>13}" if any(map(_errors, rows)) else ""
    console.out(console.table(("tensor", "shape", "type", "bits", "size", errors), lines, "lllrrl"))


def _errors(t: "PlannedTensor") -> str:
    """Of a tensor that was quantized. Error and reason share a column: a tensor has one or the other."""
    rmse, rms = getattr(t, "rmse", 0.0), getattr(t, "rms", 0.0)
    if not rmse or not rms:
        return ""
    worst = f"{getattr(t, 'worst_row', -1)}: {100 * getattr(t, 'worst_error', math.nan):.2f} %"
    return f"{100 * rmse / rms:5.2f} %  {1 - getattr(t, 'cosine', 1.0):.1e}  {worst:>13}  "


def show_trial(choice: "TypeChoice", most: float) -> None:
    """A note on a file that --max-kld tried."""
    kld = choice.kld
    console.note(
        f"{choice.bits_per_weight:.3f} bits per weight: KL divergence {kld.value:.5f} ± {kld.error:.5f}, "
        f"{'within' if kld.value <= most else 'over'} {most:g}"
    )


def summary(report: "QuantizeReport") -> str:
    """The line at the end: sizes, bits per weight, time."""
    files = f" and {report.n_files - 1} more" if report.n_files > 1 else ""
    sizes = f"{console.size(report.nbytes_source)} -> {console.size(report.nbytes)}"
    return (
        f"{report.dst}{files}: {report.file_type.name}, {sizes}, {report.bits_per_weight:.2f} bits per weight, "
        f"{console.duration(report.seconds)}"
    )


def total(rows: "Sequence[PlannedTensor]") -> str:
    nbytes, weights = sum(t.nbytes for t in rows), sum(math.prod(t.shape) for t in rows)
    return f"{len(rows)} tensors, {console.size(nbytes)}, {8 * nbytes / weights:.2f} bits per weight"


def spread_over(
    workers: "ClusterAddress | None", source: "Path | CheckpointSource", threads: int
) -> "AbstractContextManager[Spread | None]":
    """Who does the parts; None: this process."""
    if workers is None:
        return nullcontext()
    from ..cluster.quantizing import spread

    return spread(workers, source, threads)


def measured_over(
    workers: "ClusterAddress | None", path: Path, threads: int
) -> "AbstractContextManager[Elsewhere | None]":
    """Who measures what types do to matrices; None: this process."""
    if workers is None:
        return nullcontext()
    from ..cluster.targeting import measuring

    return measuring(workers, path, threads)


def _checkpoint(path: Path) -> "CheckpointSource | None":
    """What a folder's conversion would be; None: it has no checkpoint, or is no folder."""
    if not (path / "config.json").is_file():
        return None
    from hybrid.pipeline.checkpoint_source import CheckpointSource

    source = CheckpointSource(path)
    console.SCREEN.notes(source.notes)
    return source


def _tensor_type(text: str) -> tuple[str, Any]:
    pattern, equals, name = text.rpartition("=")
    if not equals or not pattern:
        raise UsageError(f"--tensor-type {shown(text)}: expected REGEX=TYPE, for example ssm_in=Q8_0.")
    return pattern, type_named(name, f"--tensor-type {shown(text)}")


def _pair(text: str) -> tuple[str, tuple[Any, ValueType]]:
    key, _, rest = text.partition("=")
    name, colon, value = rest.partition(":")
    kind = _KINDS.get(name)
    wrong = UsageError(
        f"--override-kv {shown(text)}: expected KEY=TYPE:VALUE, TYPE one of {', '.join(_KINDS)}, "
        "for example tokenizer.ggml.add_bos_token=bool:false."
    )
    if not key or not colon or kind is None:
        raise wrong
    if kind is ValueType.BOOL and value not in ("true", "false"):
        raise wrong
    try:
        parsed: Any = {"int": lambda: int(value), "float": lambda: float(value)}.get(name, lambda: value)()
    except ValueError:
        raise wrong from None
    if name == "int" and parsed < 0:
        kind = ValueType.INT32
    return key, (value == "true" if kind is ValueType.BOOL else parsed, kind)
