"""`hybrid cache`: compiled kernels, and models that other commands made."""

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from hybrid.quant.ggml.errors import HybridError, UsageError

from .. import console

if TYPE_CHECKING:
    from hybrid.infer.kernels.build.cache_folders import CacheFolder
    from hybrid.pipeline.cached_models import CachedModel


class CacheAction(StrEnum):
    """Values of ACTION."""

    LIST = "list"
    PATH = "path"
    CLEAR = "clear"


def cache(
    action: Annotated[
        CacheAction,
        typer.Argument(
            metavar="ACTION",
            help="list: show everything; path: print the folder of the kernels in use; clear: remove kernels and "
            "models in use.",
        ),
    ] = CacheAction.LIST,
    old: Annotated[
        bool,
        typer.Option(
            "--old",
            help="With clear: remove kernels of other versions and CPUs instead, and conversions of folders that "
            "changed or are gone.",
        ),
    ] = False,
    everything: Annotated[bool, typer.Option("--all", help="With clear: remove everything.")] = False,
    kernels: Annotated[bool, typer.Option("--kernels", help="With list or clear: only compiled kernels.")] = False,
    models: Annotated[bool, typer.Option("--models", help="With list or clear: only models.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print everything as JSON.")] = False,
) -> None:
    """List or clear compiled kernels and converted models.

    The cache holds kernels, compiled when a model first needs them, per version of hybrid and CPU; conversions of
    Hugging Face folders that were run; and the models of demo and bench. Clearing is always safe: missing files are
    made again. When a file is added, files that were not used for 60 days are removed: folders of kernels, and
    conversions of folders that changed or are gone.
    """
    from hybrid.infer.kernels.build import cache_folders as library
    from hybrid.pipeline import cached_models

    if action != CacheAction.CLEAR and (old or everything):
        raise UsageError(f"--{'old' if old else 'all'} belongs to `hybrid cache clear`.")
    if old and everything:
        raise UsageError("--old and --all contradict each other. Give one of them.")
    if action == CacheAction.PATH and (kernels or models):
        raise UsageError(f"--{'kernels' if kernels else 'models'} belongs to `hybrid cache list` and `clear`.")
    both = kernels == models
    if action == CacheAction.PATH:
        path = library.folder()
        if path is None:
            tried = ", ".join(str(root) for root in library.roots())
            raise HybridError(f"no folder for kernels can be written (tried {tried}): each start compiles them.")
        if as_json:
            console.out_json({"path": path})
        else:
            console.out(str(path))
    elif action == CacheAction.CLEAR:
        folders = library.clear("all" if everything else "old" if old else "current") if kernels or both else []
        files = cached_models.remove(lambda m: everything or m.in_use != old) if models or both else []
        if as_json:
            console.out_json(rows(folders, files))
        else:
            total = console.size(sum(f.nbytes for f in folders) + sum(m.nbytes for m in files))
            what = f"{len(folders)} folder{'s' * (len(folders) != 1)} of kernels"
            console.out(f"{what} and {len(files)} model{'s' * (len(files) != 1)} removed, {total}")
    else:
        folders = library.folders() if kernels or both else []
        files = cached_models.every() if models or both else []
        if as_json:
            console.out_json(rows(folders, files))
        else:
            show(folders, files)


def rows(folders: "list[CacheFolder]", files: "list[CachedModel]") -> list[dict[str, object]]:
    """Kernel folders and models as one list for JSON."""
    return [
        *({"kind": "kernels", **console.plain(f)} for f in folders),
        *({"kind": "model", **console.plain(m)} for m in files),
    ]


def show(folders: "list[CacheFolder]", files: "list[CachedModel]") -> None:
    """Prints a line for each kernel folder and model."""
    lines = []
    for f in folders:
        made_for = f"hybrid {f.version}, {f.cpu} ({f.isa})" if f.version else "an earlier version"
        state = "in use" if f.in_use else f"refused: {f.trouble}" if f.trouble else ""
        row = str(f.path), f.n_kernels, console.size(f.nbytes), _when(f.last_used), made_for, state
        lines.append([console.one_line(str(cell)) for cell in row])
    if lines:
        console.out(console.table(("folder", "kernels", "size", "last used (UTC)", "made for", ""), lines, "lrrlll"))
    if lines and files:
        console.out()
    lines = []
    for m in files:
        cells = str(m.path), console.size(m.nbytes), _when(m.last_used), m.made_of, m.trouble or ""
        lines.append([console.one_line(cell) for cell in cells])
    if lines:
        console.out(console.table(("model", "size", "last used (UTC)", "made of, or by", ""), lines, "lrlll"))
    if not folders and not files:
        console.out("nothing is cached")


def _when(text: str) -> str:
    return text.replace("T", " ").removesuffix("Z")
