"""--split-max-size: how much of a model's tensors one file may hold."""

from typing import Annotated

import typer

from hybrid.quant.ggml.byte_sizes import UNITS, parse_size
from hybrid.quant.ggml.errors import UsageError

SplitMaxSize = Annotated[
    str | None,
    typer.Option(
        metavar="SIZE", help=f"At most so much of tensors in a file ({UNITS}); more: OUT-00001-of-00003.gguf, ..."
    ),
]


def max_bytes(text: str | None) -> int:
    """The value of --split-max-size; 0 without it."""
    if text is None:
        return 0
    size = parse_size(text, "--split-max-size")
    if not size:
        raise UsageError("--split-max-size 0: a part must hold something.")
    return size
