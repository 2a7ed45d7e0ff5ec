"""`hybrid pull`: downloads models from Hugging Face before they are needed."""

from typing import Annotated

import typer

from hybrid.quant.ggml.errors import UsageError, shown

from .. import console


def pull(
    names: Annotated[list[str], typer.Argument(metavar="NAME...", help="ORG/NAME[:TYPE][@REVISION] on Hugging Face.")],
    as_json: Annotated[bool, typer.Option("--json", help="Print names and paths as JSON.")] = False,
) -> None:
    """Download models from Hugging Face, or update them.

    Downloads the GGUF file of the given type (default: Q4_K_M, or the nearest type), or else the checkpoint and
    converts it. A model that sees also has a file mmproj with its vision tower: F16, else BF16, else Q8_0. Other
    commands do the same for a model that is not on this machine. They use a downloaded model unchanged until it is
    pulled again. An interrupted download continues where it stopped.
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
