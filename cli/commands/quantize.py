"""`hybrid quantize`: the same model in fewer bits per weight."""

import gc
import math
import time
from collections import Counter
from contextlib import ExitStack, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hybrid.pipeline import models
from hybrid.quant import Options
from hybrid.quant.ggml.errors import UsageError
from hybrid.quant.ggml.types import TRAITS
from hybrid.quant.policy import COPY, WRITABLE

from .. import console
from ..options import model_argument, output_name
from ..options.cluster_options import Cluster, cluster_address
from ..options.groups import takes_groups
from ..options.loading_options import Threads
from ..options.quantize_options import Care, Goal, Importance, Types, Writing
from ..reports import plots
from ..reports.plots import Plot

if TYPE_CHECKING:
    from collections.abc import Sequence
    from contextlib import AbstractContextManager

    from hybrid.convert import ConvertReport
    from hybrid.infer.evaluate.kl_statistics import MeanWithError
    from hybrid.pipeline.checkpoint_source import CheckpointSource
    from hybrid.pipeline.max_kld import TypeChoice
    from hybrid.pipeline.target import Elsewhere, Measuring
    from hybrid.quant import PlannedTensor, QuantizeReport, Source
    from hybrid.quant.budget import SizeOf
    from hybrid.quant.recoding import TensorReport
    from hybrid.quant.rotating import RotatedSource
    from hybrid.quant.tensor_parts import Spread

    from ..options.cluster_options import ClusterAddress


@dataclass(frozen=True)
class Chosen:
    """The types of the file. divergence: of such a file, if --max-kld measured it."""

    target: str
    options: Options
    effort: int
    divergence: "MeanWithError | None" = None


@takes_groups
def quantize(
    source: Annotated[
        Path, typer.Argument(metavar="IN", help=f"{model_argument.WHAT}; a GGUF file is best in F32, F16 or BF16.")
    ],
    output: Annotated[
        Path | None,
        typer.Argument(metavar="OUT", help="GGUF file to write. Default: IN-TYPE.gguf, beside IN.", show_default=False),
    ] = None,
    *,
    goal: Goal,
    types: Types,
    importance: Importance,
    care: Care,
    writing: Writing,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print the type and size that each tensor would get; write nothing.")
    ] = False,
    verbose: Annotated[bool, typer.Option("-v", "--verbose", help="Print a line per tensor, not per type.")] = False,
    plot: Plot = None,
    threads: Threads = 0,
    cluster: Cluster = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the report as JSON.")] = False,
) -> None:
    """Store the weights of a model in fewer bits.

    State-space parameters (ssm_a, ssm_d, ssm_conv1d), norms, biases and routers stay in f32. The report has a line per
    type, with the quantization error (the errors' root mean square, divided by the weights') and the tensor with the
    largest error. --verbose adds 1 - cosine and the worst row of each tensor.
    """
    gc.set_threshold(200_000)  # loading the kernels makes that many objects, none of them garbage
    from hybrid.quant import file_nbytes, plan
    from hybrid.quant import quantize as library

    options, start = types.options(), time.perf_counter()
    if not goal.given and output is not None and output.name.upper() in WRITABLE:  # IN TYPE
        goal, output = replace(goal, target=output.name), None
    goal.check(output)
    if output is None and not dry_run:
        output = output_name.beside(source, goal.target)
    output = output or Path()  # a dry run, in which only workers write
    workers, plot = cluster_address(cluster), plots.checked(plot)
    if types.rotate and (goal.target is None or goal.target.strip().upper() == COPY or workers is not None):
        raise UsageError(
            "--rotate works with a TYPE other than COPY, in this process. Write the rotated weights first: hybrid "
            "quantize IN ROTATED.gguf F16 --rotate; then quantize that file."
        )
    if plot is not None and dry_run:
        raise UsageError("--plot needs quantized tensors: leave out --dry-run.")
    imatrix, text = importance.read(), goal.text()
    how = {"imatrix": imatrix, "allow_requantize": care.allow_requantize, **writing.how()}
    if writing.prune_layers is not None and goal.target is None:
        raise UsageError("--prune-layers goes with a TYPE. Make a file with COPY, then choose types for that.")
    whole, path = _input(source, vision=writing.vision, measured=goal.target is None)
    if goal.target is not None:
        chosen = Chosen(goal.target, options, care.effort or 0)
    else:
        from hybrid.pipeline.target import EFFORT, Measuring

        effort = EFFORT if care.effort is None else care.effort
        file_size = lambda kind, chosen: file_nbytes(whole, kind, options=chosen, **how)
        with measured_over(workers, path, threads) as elsewhere:
            measuring = Measuring(options, imatrix, care.allow_requantize, effort, threads, elsewhere, console.SCREEN)
            chosen = _chosen(goal, text, path, measuring, file_size, None if workers is None else output.parent)
    with ExitStack() as stack:
        left: Path | Source = whole
        spread = None if dry_run else stack.enter_context(spread_over(workers, whole, threads))
        if layers := writing.layers():
            from hybrid.pipeline.pruning import pruned

            left = some = stack.enter_context(pruned(whole, layers))
            how["imatrix"] = imatrix and some.importance(imatrix)
            spread = spread and some.spread(spread)
        if types.rotate:
            left = rotated = _rotated(stack, left, care)
            how["imatrix"] = how["imatrix"] and rotated.importance(how["imatrix"])
        if dry_run:
            asked = {"options": chosen.options, "imatrix": how["imatrix"], "allow_requantize": care.allow_requantize}
            show_plan(plan(left, chosen.target, **asked), as_json)
            show_tower_plan(whole, writing, chosen.target, as_json)
            return
        tower = stack.enter_context(_tower_written(whole, output, writing, chosen.target, threads))
        progress = stack.enter_context(console.ProgressBar("quantizing", "bytes"))
        report = library(
            left, output, chosen.target, n_threads=threads, options=chosen.options, effort=chosen.effort, **how,
            progress=progress, spread=spread,
        )  # fmt: skip
    if goal.target is None:  # the report has the time of the writing
        report = replace(report, seconds=time.perf_counter() - start)
    show_report(report, tower, chosen.divergence, goal.max_kld, as_json=as_json, verbose=verbose)
    if plot is not None:
        draw_errors(plot, report, output.name)


def _input(source: Path, *, vision: bool, measured: bool) -> "tuple[Path | CheckpointSource, Path]":
    """The source to quantize (a checkpoint or a GGUF file), and the GGUF file that measurements use. vision: the
    checkpoint's tower is also written."""
    found = models.source(source, console.SCREEN)
    checkpoint = _checkpoint(found, vision)
    is_ready = checkpoint is not None or not found.is_dir()
    path = found if is_ready and not measured else models.resolve(found, console.SCREEN)
    return checkpoint or path, path


def _rotated(stack: ExitStack, weights: "Path | Source", care: Care) -> "RotatedSource":
    """The weights of --rotate; `stack` closes the file that is opened for them."""
    from hybrid.quant import GGUFSource
    from hybrid.quant.rotating import RotatedSource

    source = stack.enter_context(GGUFSource(weights)) if isinstance(weights, Path) else weights
    rotated = RotatedSource(source, allow_requantize=care.allow_requantize)
    console.note(f"{len(rotated.rotated)} matrices are rotated, in blocks of {rotated.block} values")
    return rotated


def _chosen(
    goal: Goal, text: str | None, path: Path, how: "Measuring", file_size: "SizeOf", folder: Path | None
) -> Chosen:
    """Chooses types by measuring the model at `path`. folder: where workers write; None: no workers."""
    if goal.max_kld is not None:
        assert text is not None
        return _within_divergence(path, text, goal.max_kld, how, folder)
    from hybrid.pipeline.target import Target, choose

    kind, options = choose(path, text, Target(goal.nbytes(), goal.target_bpw), file_size, how)
    return Chosen(kind.name, options, how.effort)


def _within_divergence(path: Path, text: str, most: float, how: "Measuring", folder: Path | None) -> Chosen:
    """Chooses types for --max-kld."""
    from hybrid.pipeline.max_kld import OutOfReachError, choose

    try:
        choice = choose(path, text, most, how, tried=lambda choice: show_trial(choice, most), folder=folder)
    except OutOfReachError as err:
        raise UsageError(f"--max-kld {most:g}: {err}") from err
    return Chosen(choice.file_type.name, choice.options, how.effort, choice.kld)


def show_plan(rows: "Sequence[PlannedTensor]", as_json: bool) -> None:
    """Prints the types and sizes that would be written."""
    if as_json:
        console.out_json(rows)
        return
    show(rows)
    console.out(f"\n{total(rows)}; nothing written{fallbacks(rows)}")


def show_report(
    report: "QuantizeReport",
    tower: "ConvertReport | None",
    divergence: "MeanWithError | None",
    most: float | None,
    *,
    as_json: bool,
    verbose: bool,
) -> None:
    """Prints the reports of the text model and its tower. divergence: of a file made for --max-kld, whose limit was
    `most`."""
    if as_json:
        rows = [{**console.plain(row), "bits_per_weight": row.bits_per_weight} for row in report.rows]
        more = {"kl_divergence": console.plain(divergence)} if divergence else {}
        more |= {"vision": console.plain(tower)} if tower else {}
        bits = {"bits_per_weight": report.bits_per_weight}
        console.out_json({**console.plain(report), **bits, **more, "tensors": rows})
        return
    (show if verbose else show_types)(report.rows)
    console.out(f"\n{summary(report)}{fallbacks(report.rows)}")
    if report.nbytes > report.nbytes_source:
        console.out("The file is larger than its source.")
    if tower:
        console.out(str(tower))
    if divergence:
        console.out(f"KL divergence on the text: {divergence.value:.5f} ± {divergence.error:.5f}, at most {most:g}")


def draw_errors(plot: Path, report: "QuantizeReport", name: str) -> None:
    """Draws the errors of the matrices of file `name`."""
    if not plots.quantization_errors(plot, report.rows, f"{name} ({report.mix or report.file_type.name})"):
        console.note(f"no matrix was quantized: there is nothing to draw in {plot}")


def show(rows: "Sequence[PlannedTensor]") -> None:
    """Prints one line per tensor; errors are relative to the size of the weights."""
    lines = []
    for t in rows:
        kinds = f"{t.source.name} -> {t.target.name}" if t.source is not t.target else t.source.name
        name, shape = console.one_line(t.name), "x".join(map(str, t.shape))
        bits = f"{t.bits_per_weight:.2f}"
        lines.append((name, shape, kinds, bits, console.size(t.nbytes), f"{_errors(t)}{t.reason.value}"))
    errors = f"{'error':>7}  {'1 - cos':>7}  {'worst row':>13}" if any(map(_errors, rows)) else ""
    console.out(console.table(("tensor", "shape", "type", "bits", "size", errors), lines, "lllrrl"))


def show_types(rows: "Sequence[TensorReport]") -> None:
    """Prints a line per type that tensors had and have now, the largest first; errors as in `show`."""
    groups: dict[str, list[TensorReport]] = {}
    for t in rows:
        kinds = f"{t.source.name} -> {t.target.name}" if t.source is not t.target else t.source.name
        groups.setdefault(kinds, []).append(t)
    lines = []
    for kinds, tensors in sorted(groups.items(), key=lambda item: -sum(t.nbytes for t in item[1])):
        nbytes, weights = sum(t.nbytes for t in tensors), sum(math.prod(t.shape) for t in tensors)
        cells = kinds, str(len(tensors)), f"{8 * nbytes / weights:.2f}", console.size(nbytes)
        lines.append((*cells, *_common_error([t for t in tensors if t.rmse and t.rms])))
    console.out(console.table(("type", "tensors", "bits", "size", "error", "largest error"), lines, "lrrrrl"))


def _common_error(tensors: "Sequence[TensorReport]") -> tuple[str, str]:
    """The error of all these tensors, and the largest one with its tensor; empty without tensors."""
    if not tensors:
        return "", ""
    error, size = (sum(math.prod(t.shape) * getattr(t, name) ** 2 for t in tensors) for name in ("rmse", "rms"))
    worst = max(tensors, key=lambda t: t.rmse / t.rms)
    largest = f"{100 * worst.rmse / worst.rms:.2f} % in {console.one_line(worst.name)}"
    return f"{100 * math.sqrt(error / size):.2f} %", largest


def _errors(t: "PlannedTensor") -> str:
    """The errors of a quantized tensor, or the reason it was left alone: they share a column."""
    rmse, rms = getattr(t, "rmse", 0.0), getattr(t, "rms", 0.0)
    if not rmse or not rms:
        return ""
    worst = f"{getattr(t, 'worst_row', -1)}: {100 * getattr(t, 'worst_error', math.nan):.2f} %"
    return f"{100 * rmse / rms:5.2f} %  {1 - getattr(t, 'cosine', 1.0):.1e}  {worst:>13}  "


def show_trial(choice: "TypeChoice", most: float) -> None:
    """Prints a note on a file that --max-kld tried."""
    kld = choice.kld
    console.note(
        f"{choice.bits_per_weight:.3f} bits per weight: KL divergence {kld.value:.5f} ± {kld.error:.5f}, "
        f"{'within' if kld.value <= most else 'over'} {most:g}"
    )


def summary(report: "QuantizeReport") -> str:
    """The last line: sizes, bits per weight, time."""
    files = f" and {report.n_files - 1} more" if report.n_files > 1 else ""
    sizes = f"{console.size(report.nbytes_source)} -> {console.size(report.nbytes)}"
    bits, kind = f"{report.bits_per_weight:.2f} bits per weight", report.mix or report.file_type.name
    return f"{report.dst}{files}: {kind}, {sizes}, {bits}, {console.duration(report.seconds)}"


def fallbacks(rows: "Sequence[PlannedTensor]") -> str:
    """A line about the tensors whose rows do not fit the type that the recipe has for them; empty without such."""
    changes: Counter[tuple[str, str]] = Counter()
    widths: dict[int, set[int]] = {}  # by the number that they are no multiple of
    for t in rows:
        if t.unfit is not None:
            changes[t.unfit.name, t.target.name] += 1
            widths.setdefault(TRAITS[t.unfit].block, set()).add(t.shape[-1])
    if not changes:
        return ""
    kinds = ", ".join(f"{n} {old} -> {new}" for (old, new), n in changes.most_common())
    why = " and ".join(
        f"width {' or '.join(map(str, sorted(found)))} is no multiple of {block}"
        for block, found in sorted(widths.items())
    )
    return f"\n{changes.total()} tensors fell back ({kinds}): {why}"


def total(rows: "Sequence[PlannedTensor]") -> str:
    nbytes, weights = sum(t.nbytes for t in rows), sum(math.prod(t.shape) for t in rows)
    return f"{len(rows)} tensors, {console.size(nbytes)}, {8 * nbytes / weights:.2f} bits per weight"


def spread_over(
    workers: "ClusterAddress | None", source: "Path | CheckpointSource", threads: int
) -> "AbstractContextManager[Spread | None]":
    """The workers that quantize tensors; None: this process does."""
    if workers is None:
        return nullcontext()
    from ..cluster.quantizing import spread

    return spread(workers, source, threads)


def measured_over(
    workers: "ClusterAddress | None", path: Path, threads: int
) -> "AbstractContextManager[Elsewhere | None]":
    """The workers that measure the effect of types on matrices; None: this process does."""
    if workers is None:
        return nullcontext()
    from ..cluster.targeting import measuring

    return measuring(workers, path, threads)


def _tower_written(
    whole: "Path | CheckpointSource", output: Path, writing: Writing, target: str, threads: int
) -> "AbstractContextManager[ConvertReport | None]":
    """Writes the tower of a checkpoint beside `output`, which is written within the context."""
    if isinstance(whole, Path) or not writing.vision:
        return nullcontext()
    from hybrid.pipeline import vision_files

    return vision_files.beside(whole.path, output, target, console.SCREEN, threads)


def show_tower_plan(whole: "Path | CheckpointSource", writing: Writing, target: str, as_json: bool) -> None:
    """Prints the size of the tower that would be written."""
    if as_json or isinstance(whole, Path) or not writing.vision:
        return
    from hybrid.convert.plan import has_tower, prepare_tower
    from hybrid.pipeline.vision_files import tower_type

    if has_tower(whole.path):
        tower = prepare_tower(whole.path, file_type=tower_type(target)).plan
        console.out(f"vision tower: {tower.file_type.name}, {len(tower.tensors)} tensors, {console.size(tower.nbytes)}")


def _checkpoint(path: Path, vision: bool) -> "CheckpointSource | None":
    """The planned conversion of a folder; None if `path` has no checkpoint."""
    if not (path / "config.json").is_file():
        return None
    from hybrid.pipeline.checkpoint_source import CheckpointSource

    source = CheckpointSource(path, vision=vision)
    console.SCREEN.notes(source.notes)
    return source
