"""`hybrid inspect`: what is in a GGUF file."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hybrid.quant.inspection import N_CTX

from .. import console, model_argument

if TYPE_CHECKING:
    from hybrid.quant import Inspection
    from hybrid.quant.ggml.reader import GGUFFile

WIDTH = 90


def inspect(
    file: Annotated[Path, typer.Argument(metavar="FILE", help=f"{model_argument.FILE}.")],
    n_ctx: Annotated[
        int, typer.Option("-c", "--ctx", min=1, help="Context length that memory per sequence is reckoned for.")
    ] = N_CTX,
    tensors: Annotated[bool, typer.Option("--tensors", help="List every tensor with shape, type and size.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print everything as JSON.")] = False,
) -> None:
    """Show what is in a GGUF file.

    Metadata, the layer pattern (A attention, M state-space, E experts), tensor types, bits per weight, and the memory
    that one sequence takes: recurrent state, and keys and values at a given context. Weights are not read.
    """
    from hybrid.quant import inspect as library
    from hybrid.quant.ggml.split import open_gguf

    from ..chains import models

    with open_gguf(models.file(file)) as gguf:
        facts = library(gguf, n_ctx)
        if as_json:
            listing = [
                {"name": t.name, "shape": t.shape, "type": t.type.name, "nbytes": t.nbytes, "offset": t.offset}
                for t in gguf.tensors.values()
            ]
            console.out_json({**console.plain(facts), "metadata": dict(gguf.metadata), "tensors": listing})
            return
        show(facts, gguf)
        if tensors:
            rows = [
                (console.one_line(t.name), "x".join(map(str, t.shape)), t.type.name, console.size(t.nbytes))
                for t in gguf.tensors.values()
            ]
            console.out("\n" + console.table(("tensor", "shape", "type", "size"), rows, "lllr"))


def show(facts: "Inspection", gguf: "GGUFFile") -> None:
    """Print what `inspect` found, for a person."""
    from hybrid.quant.ggml.types import FileType

    console.out(console.bold("metadata"))
    for key in gguf.metadata:
        name = f" ({facts.file_type})" if key == "general.file_type" and facts.file_type in FileType.__members__ else ""
        console.out(f"  {console.one_line(key)} = {shortened(gguf.metadata[key])}{name}")

    _show_layers(facts)
    console.out()
    _show_types(facts)
    _show_memory(facts)


def _show_layers(facts: "Inspection") -> None:
    console.out("\n" + console.bold(f"{len(facts.pattern)} layers"))
    for line in pattern_rows(facts.pattern):
        console.out(f"  {line}")
    present = "".join(facts.pattern)
    matrix = "matrix memory (mLSTM)" if facts.architecture == "xlstm" else "state-space (Mamba)"
    meanings = {
        "A": "attention", "M": matrix, "R": "time mixing (RWKV)", "C": "short convolution",
        "E": "experts",
    }  # fmt: skip
    legend = [
        f"{letter} {meaning}: {sum(letter in p for p in facts.pattern)}"
        for letter, meaning in meanings.items()
        if letter in present
    ]
    if legend:
        console.out("  " + ", ".join(legend))


def _show_types(facts: "Inspection") -> None:
    rows = [
        (u.type, u.n_tensors, console.count(u.n_weights), console.size(u.nbytes), f"{8 * u.nbytes / u.n_weights:.2f}")
        for u in facts.types
    ]
    total = sum(u.n_tensors for u in facts.types), sum(u.nbytes for u in facts.types)
    rows.append(
        ("all", total[0], console.count(facts.n_weights), console.size(total[1]), f"{facts.bits_per_weight:.2f}")
    )
    console.out(console.table(("type", "tensors", "weights", "size", "bits/weight"), rows, "lrrrr"))


def _show_memory(facts: "Inspection") -> None:
    console.out("\n" + console.bold("memory per sequence"))
    if facts.is_encoder:
        console.out("  none: an encoder reads texts as a whole and keeps nothing")
        return
    console.out(f"  recurrent state   {console.size(facts.state_nbytes_per_seq)}, at any length")
    console.out(
        f"  keys and values   {console.size(facts.kv_nbytes_per_seq)} at {facts.n_ctx} tokens "
        f"({facts.kv_nbytes_per_token} bytes per token)"
    )


def pattern_rows(pattern: tuple[str, ...], per_row: int = 16) -> list[str]:
    """`M  ME A  ME ...`, sixteen layers to a row, each row beginning with the number of its first layer."""
    width = max((len(p) for p in pattern), default=1)
    number = len(str(max(len(pattern) - 1, 0)))
    return [
        f"{i:>{number}}  " + " ".join(p.ljust(width) for p in pattern[i : i + per_row]).rstrip()
        for i in range(0, len(pattern), per_row)
    ]


def shortened(value: Any) -> str:
    """One line of at most WIDTH characters: arrays with their length and first items, long strings cut."""
    if isinstance(value, str):
        text = json.dumps(value, ensure_ascii=False)
    elif hasattr(value, "__len__"):
        items = [json.dumps(console.plain(v), ensure_ascii=False) for v in value[:8]]
        more = ", ..." if len(value) > len(items) else ""
        text = f"[{', '.join(items)}{more}] ({len(value)})"
    else:
        text = f"{value:g}" if isinstance(value, float) else str(value)
    text = console.one_line(text)
    return text if len(text) <= WIDTH else text[: WIDTH - 4] + " ..."
