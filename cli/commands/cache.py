"""`hybrid cache`: the folders of compiled kernels."""

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer
from hybrid.quant.ggml.errors import HybridError, UsageError

from .. import console

if TYPE_CHECKING:
    from hybrid.infer.kernels.cache_folders import CacheFolder


class Action(StrEnum):
    """What to do."""

    LIST = "list"
    PATH = "path"
    CLEAR = "clear"


def cache(
    action: Annotated[
        Action,
        typer.Argument(metavar="ACTION", help="list all folders, print the path of the one in use, or clear it."),
    ] = Action.LIST,
    old: Annotated[bool, typer.Option("--old", help="clear: those of other versions and CPUs instead.")] = False,
    everything: Annotated[bool, typer.Option("--all", help="clear: all of them.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print everything as JSON.")] = False,
) -> None:
    """List or clear the compiled kernels.

    Kernels are compiled when a model needs them for the first time and kept for this version of hybrid on this CPU.
    Clearing is always safe: what is missing is compiled again. Folders that nobody used for 60 days are removed when
    another one is made.
    """
    from hybrid.infer.kernels import cache_folders as library

    if action != Action.CLEAR and (old or everything):
        raise UsageError(f"--{'old' if old else 'all'} belongs to `hybrid cache clear`.")
    if old and everything:
        raise UsageError("--old and --all contradict each other. Give one of them.")
    if action == Action.PATH:
        path = library.folder()
        if path is None:
            tried = ", ".join(str(root) for root in library.roots())
            raise HybridError(f"no folder for kernels can be written (tried {tried}): each start compiles them.")
        if as_json:
            console.out_json({"path": path})
        else:
            console.out(str(path))
    elif action == Action.CLEAR:
        removed = library.clear("all" if everything else "old" if old else "current")
        if as_json:
            console.out_json(removed)
        else:
            total = console.size(sum(f.nbytes for f in removed))
            console.out(f"{len(removed)} folder{'s' * (len(removed) != 1)} removed, {total}")
    else:
        found = library.folders()
        if as_json:
            console.out_json(found)
        else:
            show(found)


def show(found: "list[CacheFolder]") -> None:
    """One line per folder."""
    rows = []
    for f in found:
        made_for = f"hybrid {f.version}, {f.cpu} ({f.isa})" if f.version else "an earlier version"
        state = "in use" if f.in_use else f"refused: {f.trouble}" if f.trouble else ""
        used = f.last_used.replace("T", " ").removesuffix("Z")
        row = str(f.path), f.n_kernels, console.size(f.nbytes), used, made_for, state
        rows.append([console.one_line(str(cell)) for cell in row])
    if rows:
        console.out(console.table(("folder", "kernels", "size", "last used (UTC)", "made for", ""), rows, "lrrlll"))
    else:
        console.out("no compiled kernels")
