"""`hybrid convert`: Hugging Face checkpoint to GGUF file."""

import json
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hybrid.quant.ggml.errors import UsageError, shown

from .. import console
from ..options.cluster_options import Cluster, cluster_address
from ..options.split_size import SplitMaxSize, max_bytes

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from hybrid.convert import ConvertPlan
    from hybrid.convert.tensor_parts import Spread

    from ..options.cluster_options import ClusterAddress


def convert(
    source: Annotated[
        Path | None,
        typer.Argument(
            metavar="DIR|FILE",
            help="Folder with config.json and weights, a file of weights in such a folder, or ORG/NAME on Hugging "
            "Face.",
        ),
    ] = None,
    target: Annotated[
        Path | None,
        typer.Argument(metavar="OUT.gguf", help="File to write, as with -o; needs DIR|FILE before it."),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option("-o", "--output", "--outfile", help="File to write. Default: named after the model and type."),
    ] = None,
    outtype: Annotated[
        str,
        typer.Option(
            help="Type of the matrices: auto, f32, f16, bf16, q8_0 or nvfp4. auto keeps the checkpoint's own, NVFP4 "
            "and MXFP4 bit for bit; nvfp4 does the same, and refuses a checkpoint without NVFP4."
        ),
    ] = "auto",
    tokenizer: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR|GGUF", help="Take the tokenizer from here, for checkpoints without one (original Mamba)."
        ),
    ] = None,
    vocab_only: Annotated[
        bool, typer.Option("--vocab-only", help="Write metadata and tokenizer only, no weights.")
    ] = False,
    metadata: Annotated[
        Path | None, typer.Option(metavar="FILE.json", help="JSON file of general.* keys to add or to replace.")
    ] = None,
    lora: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER",
            help="Convert this PEFT adapter instead of a model. DIR is the model it was trained on (config.json is "
            "enough). Default: the model that the adapter names.",
        ),
    ] = None,
    split_max_size: SplitMaxSize = None,
    model_name: Annotated[str | None, typer.Option("--model-name", help="Set general.name.")] = None,
    mtp: Annotated[
        bool,
        typer.Option(
            "--mtp/--no-mtp",
            help="Include the model's own heads for guessing tokens, if it has any: see --spec of `hybrid run`.",
        ),
    ] = True,
    vision: Annotated[
        bool,
        typer.Option(
            "--vision/--no-vision",
            help="Convert the vision tower too, if the model has one: into mmproj-NAME.gguf beside the file. Its type "
            "is f16, or OUTTYPE.",
        ),
    ] = True,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print every tensor with its type and size; write nothing.")
    ] = False,
    verify: Annotated[
        bool, typer.Option("--verify", help="Read the written file again and compare every tensor with the checkpoint.")
    ] = False,
    cluster: Cluster = None,
    list_architectures: Annotated[
        bool, typer.Option("--list-architectures", help="List the architectures that can be converted, and exit.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the report as JSON.")] = False,
) -> None:
    """Convert a Hugging Face checkpoint to a GGUF file.

    Reads safetensors and pytorch_model.bin, in one file or many, without torch. llama.cpp can load the result.
    A conversion that fails or is interrupted leaves no file.
    """
    from hybrid.pipeline import models

    output = output_of(target, output)
    if list_architectures:
        show_architectures(as_json)
        return
    if lora is not None:
        others = (
            tokenizer,
            vocab_only,
            metadata,
            split_max_size,
            model_name,
            not mtp,
            not vision,
            dry_run,
            verify,
            cluster,
        )
        if any(others):
            raise UsageError("--lora goes with DIR, -o, --outtype and --json only.")
        convert_adapter(lora, output, source, outtype, as_json)
        return
    if source is None:
        raise typer.BadParameter("Missing argument 'DIR|FILE': the checkpoint to convert")
    source = models.checkpoint(source, console.SCREEN)
    how: dict[str, Any] = {
        "outtype": outtype, "tokenizer": tokenizer, "vocab_only": vocab_only, "metadata": metadata,
        "model_name": model_name, "heads": mtp, "vision": vision,
    }  # fmt: skip
    if dry_run:
        show_plan(source, output, how, as_json)
        return
    how["split_max_size"] = max_bytes(split_max_size)
    write(source, output, how, cluster_address(cluster), verify=verify, as_json=as_json)


def output_of(target: Path | None, output: Path | None) -> Path | None:
    """The file to write. UsageError: two files, or an argument that is no name of a GGUF file."""
    if target is None:
        return output
    if output is not None:
        raise UsageError(f"OUT.gguf ({shown(target)}) and -o ({shown(output)}) are both given. Use one of them.")
    if target.suffix.lower() != ".gguf":
        raise UsageError(
            f"OUT.gguf: {shown(target)} does not end in .gguf. A file of another name is given with -o, a type with "
            "--outtype."
        )
    return target


def show_architectures(as_json: bool) -> None:
    """Prints the architectures that can be converted."""
    from hybrid.convert import ARCHITECTURES
    from hybrid.convert.architectures.wrappers import WRAPPERS

    names = sorted((*ARCHITECTURES, *WRAPPERS))
    if as_json:
        console.out_json(names)
    else:
        console.out("\n".join(names))


def convert_adapter(lora: Path, output: Path | None, base: Path | None, outtype: str, as_json: bool) -> None:
    """Converts a PEFT adapter to a GGUF file."""
    from hybrid.convert import convert_lora

    report = convert_lora(lora, output, base=base, outtype=outtype)
    if as_json:
        console.out_json(report)
    else:
        console.out(str(report))


def write(
    source: Path,
    output: Path | None,
    how: "dict[str, Any]",
    workers: "ClusterAddress | None",
    *,
    verify: bool,
    as_json: bool,
) -> None:
    """Converts with the settings `how` and prints the report; with `verify`, compares the files with the checkpoint."""
    from hybrid import convert as library

    with (
        spread_over(workers, source, how["outtype"], how["heads"]) as spread,
        console.ProgressBar("converting", "bytes") as progress,
    ):
        report = library.convert(source, output, **how, progress=progress, spread=spread)
    if not as_json:
        console.out(str(report))
    result: dict[str, Any] = {"convert": report}
    if verify:
        with console.ProgressBar("verifying", "bytes") as progress:
            result["verify"] = library.verify(source, report.output, progress=progress)
            if report.vision:
                result["verify_vision"] = library.verify(source, report.vision.output, progress=progress)
        if not as_json:
            console.out("\n".join(str(result[name]) for name in ("verify", "verify_vision") if name in result))
    if as_json:
        console.out_json(result if verify else report)


def spread_over(
    workers: "ClusterAddress | None", source: Path, outtype: str, heads: bool
) -> "AbstractContextManager[Spread | None]":
    """The workers that convert the tensors; None: this process does."""
    if workers is None:
        return nullcontext()
    from ..cluster.converting import spread

    return spread(workers, source, outtype, heads)


def show_plan(source: Path, output: Path | None, how: "dict[str, Any]", as_json: bool) -> None:
    """Prints metadata and tensors of the files that would be written."""
    from hybrid.convert import plan as library
    from hybrid.quant.ggml.vision_names import vision_path

    plan = library(source, **how)
    if as_json:
        console.out_json(plan)
        return
    show_planned(plan, output)
    if plan.vision:
        console.out()
        show_planned(plan.vision, output and vision_path(output))


def show_planned(plan: "ConvertPlan", output: Path | None) -> None:
    """Prints metadata and tensors of one file."""
    for key, value in plan.metadata.items():
        text = json.dumps(console.plain(value), ensure_ascii=False)
        console.out(f"{key} = {text if len(text) <= 90 else text[:86] + ' ...'}")
    console.out()
    rows = [(t.name, "x".join(map(str, t.shape)), t.type.name, console.size(t.nbytes)) for t in plan.tensors]
    console.out(console.table(("tensor", "shape", "type", "size"), rows, "lllr"))
    console.out(
        f"\n{len(plan.tensors)} tensors, {console.size(plan.nbytes)}; would be written to {output or plan.output}"
    )
