"""Model files: converts checkpoints, and quantizes."""

import os
from collections.abc import Collection
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

from .advice import advised
from .display.screen import SCREEN, ProgressBar

if TYPE_CHECKING:
    from hybrid.convert import ConvertReport
    from hybrid.quant import QuantizeReport, Source

PathLike = str | os.PathLike[str]


def to_gguf(source: PathLike, target: PathLike, *, type: str = "auto", threads: int = 0) -> "ConvertReport":
    """Converts a Hugging Face checkpoint (a folder) to a GGUF file; the report lists its contents.

    type: "f32", "f16", "bf16", "q8_0", "nvfp4", or "auto": the checkpoint's own; for other types see `quantize`.
    threads: 0: all cores. HybridError: the checkpoint is damaged or its architecture is not supported; no file is left
    then.
    """
    from hybrid.convert import convert

    with advised(), ProgressBar("converting", "bytes") as progress:
        return convert(Path(source), Path(target), outtype=type, n_threads=threads, progress=progress)


def quantize(
    source: PathLike,
    target: PathLike,
    type: str = "Q4_K_M",
    *,
    imatrix: PathLike | None = None,
    effort: int = 0,
    requantize: bool = False,
    prune_layers: Collection[int] = (),
    vision: bool = True,
    threads: int = 0,
) -> "QuantizeReport":
    """Stores the weights of a GGUF file or a Hugging Face checkpoint in fewer bits; the report lists sizes and errors.

    type          Q4_K_M, Q6_K, Q8_0, IQ4_XS...: docs/quantize.md
    imatrix       importance matrix, a file made by `hybrid imatrix` or llama-imatrix
    effort        1: smaller errors at the same size, slower
    requantize    accept a file that is already quantized; quality suffers
    prune_layers  layers to leave out
    vision        convert a checkpoint's vision tower too, into mmproj-NAME beside the file
    threads       0: all cores
    HybridError: an unknown type, or a file that cannot be read or written; no file is left then.
    """
    from hybrid.quant import Imatrix
    from hybrid.quant import quantize as library

    with advised(), ExitStack() as stack:
        whole = left = _source(Path(source), vision)
        importance = None if imatrix is None else Imatrix.read(Path(imatrix))
        if prune_layers:
            from .pipeline.pruning import pruned

            left = some = stack.enter_context(pruned(whole, prune_layers))
            importance = importance and some.importance(importance)
        if vision and Path(source).is_dir():
            from .pipeline import vision_files

            stack.enter_context(vision_files.beside(Path(source), Path(target), type, SCREEN, threads))
        progress = stack.enter_context(ProgressBar("quantizing", "bytes"))
        return library(
            left,
            Path(target),
            type,
            imatrix=importance,
            effort=effort,
            allow_requantize=requantize,
            n_threads=threads,
            progress=progress,
        )


def _source(path: Path, vision: bool) -> "Path | Source":
    if not path.is_dir():
        return path
    from .pipeline.checkpoint_source import CheckpointSource

    return CheckpointSource(path, vision=vision)
