"""`hybrid gguf`: splitting, merging, hashing and editing of GGUF files."""

from pathlib import Path
from typing import Annotated

import typer

from hybrid.pipeline import models
from hybrid.quant.ggml.byte_sizes import UNITS
from hybrid.quant.ggml.errors import FormatError, UsageError

from .. import console
from ..options import model_argument
from ..options.split_size import SplitMaxSize, max_bytes


def gguf() -> None:
    """Split, merge, hash or edit GGUF files.

    An output file appears only when it is complete. For a split model, give the first part.
    """


def split(
    source: Annotated[
        Path, typer.Argument(metavar="IN", help=f"{model_argument.FILE}; of a split model the first part.")
    ],
    output: Annotated[Path, typer.Argument(metavar="OUT", help="Prefix of the parts: OUT-00001-of-00003.gguf, ...")],
    max_size: Annotated[
        str | None,
        typer.Option(
            "--split-max-size", "--max-size", metavar="SIZE", help=f"Maximum bytes of tensors per part. {UNITS}."
        ),
    ] = None,
    max_tensors: Annotated[
        int | None, typer.Option("--split-max-tensors", "--max-tensors", min=1, help="Maximum tensors per part.")
    ] = None,
    no_tensor_first: Annotated[
        bool, typer.Option("--no-tensor-first-split", help="Write metadata and tokenizer alone into the first part.")
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print the parts that would be written; write nothing.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the report as JSON.")] = False,
) -> None:
    """Split a file into parts, as llama-gguf-split does."""
    from hybrid.quant import split as library

    if (max_size is None) == (max_tensors is None):
        raise UsageError("give one of --split-max-size and --split-max-tensors.")
    source = models.file(source, console.SCREEN)
    with console.ProgressBar("splitting", "bytes") as progress:
        report = library(
            source,
            output,
            max_bytes=max_bytes(max_size),
            max_tensors=max_tensors or 0,
            first_without_tensors=no_tensor_first,
            dry_run=dry_run,
            progress=progress,
        )
    if as_json:
        console.out_json(report)
        return
    rows = [(part.path, part.n_tensors, console.size(part.nbytes)) for part in report.parts]
    console.out(console.table(("part", "tensors", "size"), rows, "lrr"))
    if dry_run:
        console.out("\nnothing written")


def merge(
    source: Annotated[
        Path,
        typer.Argument(metavar="IN", help="The first part, with the others in the same folder; or ORG/NAME[:TYPE]."),
    ],
    output: Annotated[Path, typer.Argument(metavar="OUT", help="GGUF file to write.")],
    as_json: Annotated[bool, typer.Option("--json", help="Print the report as JSON.")] = False,
) -> None:
    """Join the parts of a split model into one file."""
    from hybrid.quant import merge as library

    source = models.file(source, console.SCREEN)
    with console.ProgressBar("merging", "bytes") as progress:
        report = library(source, output, progress=progress)
    if as_json:
        console.out_json(report)
    else:
        console.out(f"{report.path}: {report.n_tensors} tensors, {console.size(report.nbytes)}")


def hash_(
    file: Annotated[
        Path, typer.Argument(metavar="FILE", help=f"{model_argument.FILE}; of a split model the first part.")
    ],
    xxh64: Annotated[bool, typer.Option("--xxh64", help="xxh64, the default.")] = False,
    sha1: Annotated[bool, typer.Option("--sha1", help="SHA-1.")] = False,
    sha256: Annotated[bool, typer.Option("--sha256", help="SHA-256.")] = False,
    uuid: Annotated[
        bool, typer.Option("--uuid", help="A UUID made from the weights, as llama-gguf-hash makes it.")
    ] = False,
    every: Annotated[bool, typer.Option("--all", help="xxh64, sha1 and sha256.")] = False,
    no_layer: Annotated[bool, typer.Option("--no-layer", help="Hash the whole model only, not each tensor.")] = False,
    check: Annotated[
        Path | None,
        typer.Option(
            "-c", "--check", metavar="LIST", help="File with the output of this command: compare the hashes with it."
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the hashes as JSON.")] = False,
) -> None:
    """Hash the weights, tensor by tensor and as a whole.

    Prints the lines that llama-gguf-hash prints. Metadata is not hashed, so a file and its parts have the same hashes.
    """
    from hybrid.quant import HashKind as Kind
    from hybrid.quant import hashes as hashes_of
    from hybrid.quant import read_manifest

    wanted = {Kind.XXH64: xxh64 or every, Kind.SHA1: sha1 or every, Kind.SHA256: sha256 or every, Kind.UUID: uuid}
    manifest = read_manifest(check) if check else None
    kinds = [kind for kind, is_wanted in wanted.items() if is_wanted]
    if not kinds:
        kinds = [kind for kind in Kind if manifest is None or any(kind == k for k, _ in manifest)]
        kinds = kinds if manifest else [Kind.XXH64]
    file = models.file(file, console.SCREEN)
    hashes = []
    with console.ProgressBar("hashing", "bytes") as progress:
        for line in hashes_of(file, kinds, tensors=not no_layer, manifest=manifest, progress=progress):
            hashes.append(line)
            if not as_json:
                said = "" if manifest is None else f"  -  {_verdict(line.matches)}"
                where = console.one_line(f"{file}:{line.tensor}" if line.tensor else f"{file}")
                console.out(f"{line.kind:<8}  {line.digest}  {where}{said}")
    if as_json:
        console.out_json([{**console.plain(line), "kind": line.kind.value} for line in hashes])
    if manifest is None:
        return
    different = [line.tensor or "the whole" for line in hashes if line.matches is False]
    if different:
        more = f" and {len(different) - 1} more" if len(different) > 1 else ""
        raise FormatError(f"{file} differs from {check}: {different[0]}{more}. Copy it again.")
    if not any(line.matches for line in hashes):
        raise FormatError(f"{check} says nothing about what {file} holds. Is it of another model?")


def _verdict(matches: bool | None) -> str:
    return {None: "Not Found", True: "Ok", False: "Mismatch"}[matches]


def set_(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="GGUF file, or one part of a split model.")],
    key: Annotated[
        str, typer.Argument(metavar="KEY", help="A key that the file has, as in tokenizer.ggml.eos_token_id.")
    ],
    value: Annotated[str, typer.Argument(metavar="VALUE", help="The new value, of the key's type; arrays as JSON.")],
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the change; write nothing.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the change as JSON.")] = False,
) -> None:
    """Change one value of the metadata.

    Numbers and bools are changed in place. For strings and arrays a new file is written beside the old one and then
    replaces it.
    """
    from hybrid.quant import set_value

    from .inspect import shortened

    with console.ProgressBar("writing", "bytes") as progress:
        change = set_value(file, key, value, dry_run=dry_run, progress=progress)
    if as_json:
        console.out_json(change)
        return
    console.out(f"{change.key} ({change.type}): {shortened(change.old)} -> {shortened(change.new)}")
    if dry_run:
        console.out(f"nothing written; it would be changed {'in place' if change.in_place else 'in a new copy'}")


def show(
    file: Annotated[Path, typer.Argument(metavar="FILE", help=f"{model_argument.FILE}, or one part of a split model.")],
    keys: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="KEY...", help="Print only these keys, in full. Default: all keys, long values shortened."
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print types and whole values as JSON.")] = False,
) -> None:
    """Print the metadata of a file with the type of each key.

    `hybrid inspect` explains what the metadata says about the model.
    """
    from hybrid.quant.ggml.reader import GGUFFile
    from hybrid.quant.rewrite import type_name

    from .inspect import shortened

    file = models.file(file, console.SCREEN)
    with GGUFFile.open(file) as opened:
        names = keys or list(opened.metadata)
        for key in names:
            if key not in opened.metadata:
                raise UsageError(f"{file} has no key {key}. `hybrid gguf show {file}` lists those it has.")
        if as_json:
            console.out_json(
                {key: {"type": type_name(opened.value_types[key]), "value": opened.metadata[key]} for key in names}
            )
        elif keys:
            for key in keys:
                value = opened.metadata[key]
                console.out(value if isinstance(value, str) else console.as_json(value))
        else:
            rows = [
                (console.one_line(key), type_name(opened.value_types[key]), shortened(opened.metadata[key]))
                for key in names
            ]
            console.out(console.table(("key", "type", "value"), rows))


def merge_lora(
    source: Annotated[Path, typer.Argument(metavar="IN", help=f"{model_argument.FILE}; in F32, F16 or BF16.")],
    adapters: Annotated[
        list[str],
        typer.Argument(
            metavar="ADAPTER[:SCALE]...", help="LoRA adapters in GGUF, each with its scale. Default scale: 1."
        ),
    ],
    output: Annotated[Path, typer.Option("-o", "--output", help="GGUF file to write.")],
    split_max_size: SplitMaxSize = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the report as JSON.")] = False,
) -> None:
    """Merge LoRA adapters into the weights of a model.

    Sums are computed in f64 and rounded once to the type of each matrix. `--lora` of run, perplexity and bench applies
    adapters without writing a new file, also to quantized models.
    """
    from hybrid.quant import merge_lora as library

    from ..options.loading_options import parse_lora

    source = models.file(source, console.SCREEN)
    with console.ProgressBar("merging", "bytes") as progress:
        report = library(
            source,
            [parse_lora(text) for text in adapters],
            output,
            max_bytes=max_bytes(split_max_size),
            progress=progress,
        )
    if as_json:
        console.out_json(report)
    else:
        changed = f"{report.n_changed} of {report.n_tensors} tensors changed"
        console.out(f"{report.output}: {changed}, {console.size(report.nbytes)}")


SUBCOMMANDS = {
    "split": split,
    "merge": merge,
    "merge-lora": merge_lora,
    "hash": hash_,
    "set": set_,
    "show": show,
}
