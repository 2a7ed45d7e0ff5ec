"""--split-max-size: maximum bytes of tensors per file."""

from typing import Annotated

import typer

from hybrid.quant.ggml.byte_sizes import UNITS, parse_size
from hybrid.quant.ggml.errors import UsageError

SplitMaxSize = Annotated[
    str | None,
    typer.Option(
        metavar="SIZE",
        help=f"Maximum bytes of tensors per file; a larger model becomes OUT-00001-of-00003.gguf, ... {UNITS}.",
    ),
]


def max_bytes(text: str | None) -> int:
    """The value of --split-max-size in bytes, or 0. UsageError: the value is not a size, or is 0."""
    if text is None:
        return 0
    size = parse_size(text, "--split-max-size")
    if not size:
        raise UsageError("--split-max-size 0: a part must hold something.")
    return size
