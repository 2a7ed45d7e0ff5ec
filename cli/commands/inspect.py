"""`hybrid inspect`: contents of a GGUF file, and memory that the model needs."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hybrid.quant.ggml.byte_sizes import UNITS, parse_size
from hybrid.quant.ggml.errors import HybridError, UsageError

from .. import console
from ..options import model_argument
from ..options.loading_options import (
    DEFAULT_BUDGET,
    CheckpointBudget,
    Checkpoints,
    Exact,
    KVTypeOption,
    Precision,
    load_options,
)
from ..reports import memory_view
from ..reports.tower_view import show_tower

if TYPE_CHECKING:
    from hybrid.infer.engine.estimate import Estimate
    from hybrid.infer.engine.layer_facts import LayerFacts
    from hybrid.infer.loading.options import LoadOptions
    from hybrid.pipeline.tower_facts import PictureNeeds, TowerFacts
    from hybrid.quant import Inspection
    from hybrid.quant.ggml.reader import GGUFFile

WIDTH = 90


def inspect(
    file: Annotated[Path, typer.Argument(metavar="FILE", help=f"{model_argument.FILE}.")],
    n_ctx: Annotated[
        int, typer.Option("-c", "--ctx", min=0, help="Context length for which memory is computed; 0: as trained.")
    ] = 0,
    tensors: Annotated[bool, typer.Option("--tensors", help="List every tensor with shape, type and size.")] = False,
    memory: Annotated[
        bool,
        typer.Option(
            "--memory", help="Show the memory that running it takes, by kind of layer and for several context lengths."
        ),
    ] = False,
    fit: Annotated[
        bool,
        typer.Option(
            "--fit",
            help="Show the longest contexts that fit into this machine's memory, by number of sequences and KV type.",
        ),
    ] = False,
    ram: Annotated[
        str | None,
        typer.Option(
            "--ram",
            metavar="SIZE",
            help=f"With --fit: for a machine with this much memory for one program. {UNITS}.",
            show_default=False,
        ),
    ] = None,
    kv_type: KVTypeOption = None,
    exact: Exact = False,
    parallel: Annotated[
        int, typer.Option("--parallel", min=1, help="With --memory: number of sequences at a time.")
    ] = 1,
    checkpoint_budget: CheckpointBudget = DEFAULT_BUDGET,
    as_json: Annotated[bool, typer.Option("--json", help="Print everything as JSON.")] = False,
) -> None:
    """Show the contents of a GGUF file.

    Shows metadata, the tokens that end an answer, the layer pattern (A attention, M recurrent layer, E experts),
    tensor types, bits per weight, and the memory of one sequence: recurrent state, and KV cache at a given context
    length; and the file with the model's vision tower, if it has one. Weights are not read. For a vision tower
    (mmproj) it shows sizes, and what pictures cost: tokens in the prompt, and memory.
    --memory and --fit show instead the memory that running the model takes, computed as the loader computes it.
    """
    from hybrid.pipeline import models
    from hybrid.pipeline.vision_files import vision_of
    from hybrid.quant import inspect as library
    from hybrid.quant.ggml.split import open_gguf
    from hybrid.quant.ggml.vision.tower import is_tower

    if ram is not None and not fit:
        raise UsageError("--ram says for which machine, which only --fit asks. Give both.")
    loading = load_options(precision=Precision(exact, kv_type), checkpoints=Checkpoints(checkpoint_budget), n_ctx=n_ctx)
    free = None if ram is None else parse_size(ram, "--ram")
    path = models.file(file, console.SCREEN)
    if memory or fit:
        _refuse_tower(path)
    needs = _needs(path, loading, parallel) if memory else None
    fits = _fits(path, loading, free) if fit else None
    with open_gguf(path) as gguf:
        facts = library(gguf)
        tower = _tower(gguf) if is_tower(gguf) else None
        layers = _layers(gguf, n_ctx) if tower is None else None
        if as_json:
            listing = [
                {"name": t.name, "shape": t.shape, "type": t.type.name, "nbytes": t.nbytes, "offset": t.offset}
                for t in gguf.tensors.values()
            ]
            more: dict[str, object] = {"memory": needs.plain()} if needs else {}
            more |= {"fit": fits.plain()} if fits else {}
            more |= {**layers.plain(), "vision": vision_of(path)} if layers else {"tower": console.plain(tower)}
            more |= {"ends": [{"id": token, "text": text} for token, text in _ends(gguf, facts).items()]}
            console.out_json({**console.plain(facts), **more, "metadata": dict(gguf.metadata), "tensors": listing})
            return
        if not (memory or fit):
            show(facts, layers, tower, gguf)
            if layers and (eyes := vision_of(path)):
                console.out(f"\n{console.bold('vision tower')}\n  {console.one_line(str(eyes))}")
        if needs is not None:
            memory_view.show_memory(needs)
        if fits is not None:
            if needs is not None:
                console.out()
            memory_view.show_fit(fits)
        if tensors:
            rows = [
                (console.one_line(t.name), "x".join(map(str, t.shape)), t.type.name, console.size(t.nbytes))
                for t in gguf.tensors.values()
            ]
            console.out("\n" + console.table(("tensor", "shape", "type", "size"), rows, "lllr"))


@dataclass(frozen=True)
class Layers:
    """Kinds of layers and their memory for a sequence of n_ctx tokens. unknown: why the layers are not known."""

    layers: "Sequence[LayerFacts]"
    n_ctx: int
    keeps_tokens: bool
    unknown: str = ""

    @property
    def pattern(self) -> tuple[str, ...]:
        return tuple(layer.letters for layer in self.layers)

    @property
    def state(self) -> int:
        return sum(layer.state_nbytes for layer in self.layers)

    @property
    def per_token(self) -> int:
        return sum(layer.kv_nbytes_per_token for layer in self.layers) if self.keeps_tokens else 0

    def plain(self) -> dict[str, object]:
        """The layers as JSON."""
        return {
            "pattern": list(self.pattern),
            "n_ctx": self.n_ctx,
            "state_nbytes_per_seq": self.state,
            "kv_nbytes_per_token": self.per_token,
            "kv_nbytes_per_seq": self.per_token * self.n_ctx,
        }


def _layers(gguf: "GGUFFile", n_ctx: int) -> Layers:
    from hybrid.infer.engine.layer_facts import layer_facts
    from hybrid.quant import inspect as library

    facts = library(gguf)
    n_ctx = n_ctx or max(0, facts.n_ctx_train)
    try:
        return Layers(layer_facts(gguf), n_ctx, not facts.is_encoder)
    except HybridError as error:
        return Layers((), n_ctx, not facts.is_encoder, console.one_line(str(error)))


def _needs(file: Path, loading: "LoadOptions", n_seq: int) -> memory_view.MemoryFacts:
    with _estimate(file, loading) as estimate:
        pictures = _pictures(file, estimate, loading)
        return memory_view.memory_facts(estimate, loading.kv_type_used, n_seq, loading.n_ctx, pictures)


def _fits(file: Path, loading: "LoadOptions", free: int | None) -> memory_view.FitFacts:
    with _estimate(file, loading) as estimate:
        return memory_view.fit_facts(estimate, free, loading.checkpoint_budget, _pictures(file, estimate, loading))


def _pictures(file: Path, estimate: "Estimate", loading: "LoadOptions") -> "PictureNeeds | None":
    """What pictures take; None: no tower belongs to the file, or the tower cannot be run."""
    from hybrid.pipeline.tower_facts import picture_needs
    from hybrid.pipeline.vision_files import vision_of

    tower = vision_of(file)
    try:
        return picture_needs(tower, estimate, estimate.usual_context, exact=loading.exact) if tower else None
    except HybridError as error:
        console.note(f"note: pictures are not counted: {console.one_line(str(error))}")
        return None


def _estimate(file: Path, loading: "LoadOptions") -> "Estimate":
    """The memory that the loader would need. UsageError: an encoder, which keeps no memory. UnsupportedError: an
    unknown architecture."""
    from hybrid.infer.engine.estimate import Estimate
    from hybrid.quant import inspect as library

    if (facts := library(file)).is_encoder:
        raise UsageError(
            f"{file.name} is an encoder: it keeps nothing of a text, so that it runs wherever its "
            f"{console.size(facts.nbytes)} fit."
        )
    return Estimate(file, exact=loading.exact)


def _ends(gguf: "GGUFFile", facts: "Inspection") -> dict[int, str]:
    """Tokens that end an answer, and their texts. Empty: an encoder, or a file without a whole tokenizer."""
    from hybrid.infer.text.tokenizer import read_vocabulary

    if facts.is_encoder:
        return {}
    try:
        return read_vocabulary(gguf).ends
    except HybridError:
        return {}


def _tower(gguf: "GGUFFile") -> "TowerFacts | str":
    """The facts of a vision tower, or why they are not known."""
    from hybrid.pipeline.tower_facts import tower_facts

    try:
        return tower_facts(gguf)
    except HybridError as error:
        return console.one_line(str(error))


def _refuse_tower(file: Path) -> None:
    from hybrid.quant.ggml.split import open_gguf
    from hybrid.quant.ggml.vision.tower import is_tower

    with open_gguf(file) as gguf:
        if is_tower(gguf):
            raise UsageError(f"{file.name} is a vision tower: the memory of a conversation is its text model's.")


def show(facts: "Inspection", layers: Layers | None, tower: "TowerFacts | str | None", gguf: "GGUFFile") -> None:
    """Prints the result of `inspect` as text: of a model with layers, or of a vision tower."""
    from hybrid.quant.ggml.types import FileType

    console.out(console.bold("metadata"))
    for key in gguf.metadata:
        name = f" ({facts.file_type})" if key == "general.file_type" and facts.file_type in FileType.__members__ else ""
        console.out(f"  {console.one_line(key)} = {shortened(gguf.metadata[key])}{name}")

    if ends := _ends(gguf, facts):
        console.out("\n" + console.bold("tokens that end an answer"))
        for token, text in ends.items():
            console.out(f"  {token}  {shortened(text)}")
    if tower is not None:
        show_tower(tower)
    if layers is not None:
        _show_layers(layers)
    console.out()
    _show_types(facts)
    if layers is not None:
        _show_memory(facts, layers)


def _show_layers(layers: Layers) -> None:
    if layers.unknown:
        console.out("\n" + console.bold("layers"))
        console.out(f"  not known: {layers.unknown}")
        return
    console.out("\n" + console.bold(f"{len(layers.pattern)} layers"))
    for line in pattern_rows(layers.pattern):
        console.out(f"  {line}")
    meanings: dict[str, list[str]] = {}
    for letter, mixer in (each for layer in layers.layers for each in layer.mixers):
        if mixer not in meanings.setdefault(letter, []):
            meanings[letter].append(mixer)
    legend = [
        f"{letter} {' or '.join(meanings[letter])}: {sum(letter in p for p in layers.pattern)}"
        for letter in "AMRCET"
        if letter in meanings
    ]
    if ahead := sum(layer.nbytes for layer in layers.layers if "T" in layer.letters):
        legend[-1] += f", {console.size(ahead)}"
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


def _show_memory(facts: "Inspection", layers: Layers) -> None:
    console.out("\n" + console.bold("memory per sequence"))
    if facts.is_encoder:
        console.out("  none: an encoder reads texts as a whole and keeps nothing")
        return
    if layers.unknown:
        console.out("  not known, as the layers are not")
        return
    console.out(f"  recurrent state   {console.size(layers.state)}, at any length")
    console.out(
        f"  keys and values   {console.size(layers.per_token * layers.n_ctx)} at {layers.n_ctx} tokens "
        f"({layers.per_token} bytes per token)"
    )


def pattern_rows(pattern: tuple[str, ...], per_row: int = 16) -> list[str]:
    """`M  ME A  ME ...`: `per_row` layers per row, each row beginning with the number of its first layer."""
    width = max((len(p) for p in pattern), default=1)
    number = len(str(max(len(pattern) - 1, 0)))
    return [
        f"{i:>{number}}  " + " ".join(p.ljust(width) for p in pattern[i : i + per_row]).rstrip()
        for i in range(0, len(pattern), per_row)
    ]


def shortened(value: Any) -> str:
    """One line of at most WIDTH characters: an array's length and first items, or the beginning of a string."""
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
