"""`hybrid pull`: models from Hugging Face, before they are needed."""

from typing import Annotated

import typer

from hybrid.quant.ggml.errors import UsageError, shown

from .. import console


def pull(
    names: Annotated[list[str], typer.Argument(metavar="NAME...", help="ORG/NAME[:TYPE][@REVISION] on Hugging Face.")],
    as_json: Annotated[bool, typer.Option("--json", help="Print names and paths as JSON.")] = False,
) -> None:
    """Download models from Hugging Face, or bring them up to date.

    The GGUF file of the type that is asked for (default: Q4_K_M, or what is nearest to it), or the checkpoint, which is
    converted; other commands do the same when a model is not here. What is here is used as it is until it is pulled
    again. An interrupted download goes on where it stopped.
    """
    from hybrid.hub.names import parse
    from hybrid.pipeline import by_name

    found = []
    for text in names:
        name = parse(text)
        if name is None:
            raise UsageError(f"{shown(text)}: expected ORG/NAME, for example ibm-granite/granite-4.0-h-tiny-GGUF.")
        found.append((str(name), by_name.pull(name, console.SCREEN)))
        if not as_json:
            console.out(str(found[-1][1]))
    if as_json:
        console.out_json([{"name": name, "path": path} for name, path in found])
