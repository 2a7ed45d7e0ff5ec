"""The plan of a conversion as callers see it; `plan` makes it."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hybrid.quant.ggml.types import FileType, GGMLType


@dataclass(frozen=True)
class PlannedTensor:
    """`shape` in numpy order; `sources` are the checkpoint's own names; `nbytes` is the size in the file."""

    name: str
    shape: tuple[int, ...]
    type: GGMLType
    sources: tuple[str, ...]
    nbytes: int


@dataclass(frozen=True)
class ConvertPlan:
    """`nbytes`: size of the whole file; `output`: the default file, `{Name}-{size}-{TYPE}.gguf` in this folder."""

    source: Path
    output: Path
    architecture: str
    file_type: FileType
    n_params: int
    nbytes: int
    notes: tuple[str, ...]
    tensors: list[PlannedTensor]
    metadata: dict[str, Any] = field(repr=False)
    vision: "ConvertPlan | None" = None  # of the file with the vision tower
