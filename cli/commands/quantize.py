"""`hybrid quantize`: the same model in fewer bits per weight."""

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from hybrid.quant.ggml.reader import GGUFFile

from .. import console

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hybrid.quant.quantize import PlannedTensor, QuantizeReport


class SsmType(StrEnum):
    """What `--ssm-type` accepts."""

    F32 = "f32"
    TARGET = "target"


def quantize(
    source: Annotated[Path, typer.Argument(metavar="IN", help="GGUF file, best in F32, F16 or BF16.")],
    output: Annotated[Path, typer.Argument(metavar="OUT", help="GGUF file to write.")],
    target: Annotated[str, typer.Argument(metavar="TYPE", help="Q8_0, Q4_0, BF16, F16 or F32.")],
    ssm_type: Annotated[
        SsmType,
        typer.Option(
            help="The small projections ssm_x and ssm_dt: f32 keeps them exact; target quantizes them, as llama.cpp."
        ),
    ] = SsmType.F32,
    allow_requantize: Annotated[
        bool, typer.Option("--allow-requantize", help="Accept a file that is quantized already; quality suffers.")
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print the type and size every tensor would get; write nothing.")
    ] = False,
    threads: Annotated[int, typer.Option("-t", "--threads", min=0, help="Worker threads; 0: all cores.")] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="Print the report as JSON.")] = False,
) -> None:
    """Store the weights of a GGUF file in fewer bits.

    State-space parameters (ssm_a, ssm_d, ssm_conv1d), norms, biases and routers stay in f32. The report names every
    tensor with its type before and after, its size, and the error that quantization made.
    """
    from hybrid.quant import quantize as library

    keep_ssm_f32 = ssm_type is SsmType.F32
    if dry_run:
        with GGUFFile.open(source) as gguf:
            planned = library.plan(gguf, target, keep_ssm_f32=keep_ssm_f32, allow_requantize=allow_requantize)
        if as_json:
            console.out_json(planned)
        else:
            show(planned)
            console.out(f"\n{len(planned)} tensors, {console.size(sum(t.nbytes for t in planned))}; nothing written")
        return
    with console.Progress("quantizing", "bytes") as progress:
        report = library.quantize(
            source,
            output,
            target,
            n_threads=threads,
            keep_ssm_f32=keep_ssm_f32,
            allow_requantize=allow_requantize,
            progress=lambda p: progress.step(p.done, p.total),
        )
    if as_json:
        console.out_json({**console.plain(report), "bits_per_weight": report.bits_per_weight, "tensors": report.rows})
        return
    show(report.rows)
    console.out(f"\n{summary(report)}")


def show(rows: "Sequence[PlannedTensor]") -> None:
    """One line per tensor; the error is relative to the root mean square of the weights."""
    lines = []
    for t in rows:
        rmse, rms = getattr(t, "rmse", 0.0), getattr(t, "rms", 0.0)
        error = f"{100 * rmse / rms:.2f} %" if rmse and rms else ""
        kinds = f"{t.source.name} -> {t.target.name}" if t.source is not t.target else t.source.name
        name, shape = console.one_line(t.name), "x".join(map(str, t.shape))
        lines.append((name, shape, kinds, console.size(t.nbytes), error, t.reason.value))
    console.out(console.table(("tensor", "shape", "type", "size", "error", ""), lines, "lllrr"))


def summary(report: "QuantizeReport") -> str:
    sizes = f"{console.size(report.nbytes_source)} -> {console.size(report.nbytes)}"
    return (
        f"{report.dst}: {report.file_type.name}, {sizes}, {report.bits_per_weight:.2f} bits per weight, "
        f"{console.duration(report.seconds)}"
    )
