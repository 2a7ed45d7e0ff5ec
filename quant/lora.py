"""Merges LoRA adapters into the weights of a model: W + scale * alpha / rank * B A, in W's type."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from .ggml import formats
from .ggml.adapter import Adapter, Given, open_all
from .ggml.errors import FormatError, Remedy, UsageError, shown
from .ggml.progress import Progress
from .ggml.reader import GGUFFile, TensorInfo
from .ggml.rotation import rotation_of
from .ggml.split import SplitWriter, open_gguf
from .ggml.types import row_nbytes
from .policy import is_quantized
from .rewrite import COPIED_NBYTES, chunks_of
from .source import DROPPED


@dataclass(frozen=True)
class MergeReport:
    """`n_changed` of `n_tensors` tensors changed; `output`: the first of the files."""

    output: Path
    n_tensors: int
    n_changed: int
    nbytes: int


def merge_lora(
    src: Path | str,
    adapters: Sequence[Given],
    dst: Path | str,
    *,
    max_bytes: int = 0,
    progress: Progress | None = None,
) -> MergeReport:
    """Writes the model `src`, with all adapters merged into its weights, to `dst`; see `SplitWriter` for max_bytes.

    Products and sums are computed in f64 and rounded once to the matrix's type. Quantized matrices are refused with a
    UsageError: they would be rounded twice, and the change is often smaller than a step. FormatError: an adapter
    belongs to another model.
    """
    with open_gguf(src) as file:
        opened = open_all(adapters, str(file.get("general.architecture")))
        try:
            _check_rotation(file, opened)
            thin = _thin(file, opened)
            writer = SplitWriter(dst, None, max_bytes=max_bytes)
            sources = [part.path for part in file.parts] + [adapter.path for adapter in opened]
            for path in writer.paths:
                if path.exists() and any(path.samefile(source) for source in sources):
                    raise UsageError(f"{shown(path)} is a source itself. Give another output path.")
            for key in file.metadata:
                if not key.startswith(DROPPED):
                    writer.add_raw(key, file)
            for t in file.tensors.values():
                writer.declare(t.name, t.shape, t.type)
            total, done = sum(t.nbytes for t in file.tensors.values()), 0
            with writer:
                for t in file.tensors.values():
                    parts = _merged(file, t, thin[t.name]) if t.name in thin else chunks_of(file, t.name)
                    writer.write(t.name, parts)
                    done += t.nbytes
                    if progress:
                        progress(t.name, done, total)
            return MergeReport(writer.paths[0], len(file.tensors), len(thin), writer.nbytes)
        finally:
            for adapter in opened:
                adapter.close()


def _check_rotation(file: GGUFFile, adapters: Sequence[Adapter]) -> None:
    rotation = rotation_of(file)
    names = {name for adapter in adapters for name in adapter.names}
    if rotation is not None and (rotated := names & rotation.folded):
        raise UsageError(
            f"{file.path.name}: {shown(min(rotated))} is rotated, and adapters cannot be merged into it. Load the "
            "model with the adapters instead."
        )


def _thin(file: GGUFFile, adapters: Sequence[Adapter]) -> dict[str, list[tuple[np.ndarray, np.ndarray]]]:
    """(A, B) of all adapters, for every matrix that an adapter changes."""
    factors: dict[str, list[tuple[np.ndarray, np.ndarray]]] = {}
    for adapter in adapters:
        for name in adapter.names:
            t = file.tensors.get(name)
            if t is None or len(t.shape) not in (2, 3):
                raise FormatError(
                    f"{shown(adapter.path.name)} adapts {shown(name)}, no matrix of {shown(file.path.name)}. "
                    "It was made for another model."
                )
            if is_quantized(t.type):
                raise UsageError(
                    f"{shown(file.path.name)}: {shown(name)} is {t.type.name}. Merge into the F32, F16 or BF16 file "
                    "and quantize that.",
                    remedy=Remedy.ADAPTER_AT_RUN_TIME,
                )
            n_expert = t.shape[0] if len(t.shape) == 3 else 1
            factors.setdefault(name, []).append(adapter.pair(name, n_expert, *t.shape[-2:]))
    return factors


def _merged(file: GGUFFile, t: TensorInfo, factors: Sequence[tuple[np.ndarray, np.ndarray]]) -> Iterator[np.ndarray]:
    """The bytes of the changed tensor, some rows of one matrix at a time."""
    rows, n = t.shape[-2:]
    raw = file.raw(t.name).reshape(-1, rows, row_nbytes(t.type, n))
    step = max(1, COPIED_NBYTES // (8 * n))
    for e in range(len(raw)):
        for start in range(0, rows, step):
            stop = min(start + step, rows)
            x = formats.decode(t.type, raw[e, start:stop]).astype(np.float64)
            for a, b in factors:
                x += b[e, start:stop].astype(np.float64) @ a[e].astype(np.float64)
            with np.errstate(over="ignore"):
                merged = x.astype(np.float32)
                encoded = formats.encode(t.type, merged)
            if not np.isfinite(formats.decode(t.type, encoded)).all():
                raise FormatError(f"{shown(t.name)} would have values too large for {t.type.name}. Lower the scale.")
            yield encoded
    file.release(t.name)
