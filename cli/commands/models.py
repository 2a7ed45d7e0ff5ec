"""`hybrid models`: models on this disk that can be run."""

import sys
from dataclasses import replace
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from hybrid.quant.ggml.errors import UsageError

from .. import console

if TYPE_CHECKING:
    from hybrid.pipeline.present import Present


class ModelsAction(StrEnum):
    """Values of ACTION."""

    LIST = "list"
    RM = "rm"


def models(
    action: Annotated[
        ModelsAction,
        typer.Argument(
            metavar="ACTION", help="list: show the models on this machine; rm: remove models from the caches."
        ),
    ] = ModelsAction.LIST,
    names: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="NAME...", help="With rm: ORG/NAME for all its files, or ORG/NAME:TYPE. May be repeated."
        ),
    ] = None,
    yes: Annotated[bool, typer.Option("-y", "--yes", help="With rm: do not ask for confirmation.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print everything as JSON.")] = False,
) -> None:
    """List or remove the models on this machine.

    Lists GGUF files and checkpoints in the cache of Hugging Face, conversions that hybrid made, and files that were run
    lately. A model listed without a remark runs without a network. rm removes files from the caches only, never a file
    of your own.
    """
    if action == ModelsAction.LIST:
        if names or yes:
            raise UsageError("`hybrid models list` takes no names. `hybrid models rm NAME` removes a model.")
        from hybrid.pipeline.present import everything

        show(everything(), as_json)
        return
    if not names:
        raise UsageError("`hybrid models rm` needs a name. `hybrid models` lists them.")
    from hybrid.pipeline import removal

    planned = [removal.planned(name) for name in names]
    size = console.size(sum(removal.nbytes for removal in planned))
    what = ", ".join(console.one_line(removal.name) for removal in planned)
    if not yes:
        if not sys.stdin.isatty():
            raise UsageError(f"{what} ({size}) is not removed: there is no terminal to ask in. Add --yes.")
        typer.confirm(f"Remove {what} ({size})?", abort=True, err=True)
    for each in planned:
        removal.remove(each)
    if as_json:
        console.out_json([{"name": removal.name, "nbytes": removal.nbytes} for removal in planned])
    else:
        console.out(f"{what} removed, {size}")


def show(models: "list[Present]", as_json: bool) -> None:
    """Prints one line per model."""
    models = [replace(m, trouble="`hybrid pull` goes on") if m.kind.value == "partial" else m for m in models]
    if as_json:
        console.out_json([{**console.plain(model), "kind": model.kind.value} for model in models])
        return
    if not models:
        console.out("nothing is here yet: `hybrid pull ORG/NAME` downloads a model, `hybrid run ORG/NAME` runs it, too")
        return
    rows = [(m.name, m.kind.value, m.type, m.architecture, console.size(m.nbytes), m.trouble) for m in models]
    cells = [[console.one_line(cell) for cell in row] for row in rows]
    console.out(console.table(("model", "what", "type", "architecture", "size", ""), cells, "llllr"))
