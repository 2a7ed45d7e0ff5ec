"""`hybrid precompile`: compiles kernels before a model runs, for container images and clusters."""

from pathlib import Path
from typing import Annotated

import typer

from .. import console
from ..options import model_argument
from ..options.loading_options import Exact, KVTypeOption, Precision, load_options


def precompile(
    models: Annotated[list[Path] | None, typer.Argument(metavar="MODEL...", help=model_argument.DEFAULT)] = None,
    parallel: Annotated[
        int,
        typer.Option("--parallel", min=1, help="Sequences that will run at the same time, as in `serve --parallel`."),
    ] = 1,
    ubatch: Annotated[
        int, typer.Option("-ub", "--ubatch", min=1, help="Tokens that will be computed in one pass (ubatch).")
    ] = 512,
    kv_type: KVTypeOption = None,
    exact: Exact = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Compile a model's kernels before it runs.

    Compiled kernels are kept per version of hybrid and kind of processor, and all models share them. For a container
    image, or a cluster's shared disk, set XDG_CACHE_HOME to the folder for the kernels, both here and where models
    run.
    """
    from dataclasses import replace

    from hybrid.infer.engine.precompile import precompile as library
    from hybrid.pipeline.models import resolve

    loading = load_options(precision=Precision(exact, kv_type))
    loading = replace(loading, n_seq_max=parallel, n_ubatch=ubatch)
    done = []
    for path in [resolve(model, console.SCREEN) for model in models] if models else [resolve(None, console.SCREEN)]:
        with console.ProgressBar(f"compiling for {path.name}", "kernels") as progress:
            result = library(path, loading, progress)
        done.append({"model_filename": str(path), **console.plain(result)})
        if not as_json:
            compiled = f"{result.n_compiled} of them compiled in {console.duration(result.seconds)}"
            console.out(f"{path.name}: {result.n_kernels} kernels, {compiled if result.n_compiled else 'all there'}")
    if as_json:
        console.out_json(done)
    else:
        console.out(f"in {result.folder}")
