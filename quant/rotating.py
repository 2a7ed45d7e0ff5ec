"""Rotates the weights of a model: `prism.hadamard.*` files of ordinary models.

A rotated row H (s * w) has no outliers: its values are close to normal in every block, and types of few bits lose less
of them. Products give the same sums, because their inputs are rotated too (`ggml.rotation`).
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from .ggml.errors import Remedy, UsageError, shown
from .ggml.reader import TensorInfo
from .ggml.rotation import AXIS, EMBEDDING, OUTPUT, PREFIX, TRANSFORM, can_fold, transform
from .ggml.types import GGMLType, ValueType
from .imatrix import Imatrix
from .imatrix_data import InputSums
from .policy import TERNARY, is_quantized, is_small_ssm, is_weight_matrix
from .source import RowSlice, Source, Writer

MOST_BLOCK = 1024  # of published files
SMALLEST_BLOCK = 32  # rows of other lengths stay as they are: hardly any type can store them
SEED = 1  # of the signs


class RotatedSource:
    """The weights of another source, rotated. Implements `Source`.

    Rows of every matrix that can be rotated (without the small ones that stay F32) are multiplied by signs, then each
    `block` of values is transformed. The block is the largest power of two that divides all their lengths, at most
    MOST_BLOCK. The embedding is only rotated if it is also the output matrix.

    Rotated tensors are F32 here. UsageError: the weights are rotated or ternary already, or quantized and
    `allow_requantize` is False, or no matrix can be rotated.
    """

    def __init__(self, source: Source, *, allow_requantize: bool = False) -> None:
        self.source, self.path, self.nbytes, self.parts = source, source.path, source.nbytes, source.parts
        arch = str(source.metadata.get("general.architecture", ""))
        if any(key.startswith(PREFIX) for key in source.metadata):
            raise UsageError(f"{shown(self.path)} has rotated weights already. Quantize them as they are.")
        if any(t.type in TERNARY for t in source.tensors.values()):
            raise UsageError(f"{shown(self.path)}: rotated ternary weights are not ternary. Quantize them as they are.")
        self.rotated = [
            t for t in source.tensors.values()
            if is_weight_matrix(t.name, t.shape, arch)
            and (can_fold(t.name, arch) or (t.name == EMBEDDING and OUTPUT not in source.tensors))
            and t.shape[-1] % SMALLEST_BLOCK == 0
            and not is_small_ssm(t.name, source.tensors)
        ]  # fmt: skip
        widths = sorted({t.shape[-1] for t in self.rotated})
        if not widths:
            raise UsageError(f"{shown(self.path)} has no matrix that can be rotated. Quantize it as it is.")
        self.block = min(MOST_BLOCK, *(width & -width for width in widths))
        again = next((t for t in self.rotated if is_quantized(t.type)), None)
        if again and not allow_requantize:
            raise UsageError(
                f"{shown(self.path)}: {shown(again.name)} is {again.type.name} already. Start from the F32, F16 or "
                "BF16 file.",
                remedy=Remedy.ALLOW_REQUANTIZE,
            )
        self.tied = any(t.name == EMBEDDING for t in self.rotated)
        rng = np.random.default_rng(SEED)
        self.signs = {width: rng.choice(np.array([-1, 1], np.int32), width) for width in widths}
        names = {t.name for t in self.rotated}
        self.tensors: Mapping[str, TensorInfo] = {
            name: replace(t, type=GGMLType.F32, nbytes=4 * math.prod(t.shape)) if name in names else t
            for name, t in source.tensors.items()
        }

    @property
    def metadata(self) -> Mapping[str, Any]:
        return self.source.metadata

    def describe(self, writer: Writer) -> None:
        self.source.describe(writer)
        folded = [t.name for t in self.rotated if t.name != EMBEDDING]
        keys: dict[str, Any] = {
            "version": 2 if self.tied else 1, "block_size": self.block, "transform": TRANSFORM, "axis": AXIS,
            "sign_mode": "explicit", "sign_widths": list(self.signs),
            "sign_values": np.concatenate(list(self.signs.values())).tolist(), "weight_names": folded,
        }  # fmt: skip
        if self.tied:
            keys |= {"inverse_weight_names": [EMBEDDING], "tied_output": True}
        kinds = {"version": ValueType.UINT32, "block_size": ValueType.UINT32}
        for name, value in keys.items():
            writer.add(PREFIX + name, value, kinds.get(name))

    def slices(self, name: str, rows: int) -> Iterator[RowSlice]:
        """All rows of a tensor in order, about `rows` per slice at most; rotated ones in F32."""
        parts = self.source.slices(name, rows)
        if name not in {t.name for t in self.rotated}:
            yield from parts
            return
        from .ggml.kernels import coding  # imports numba

        t = self.source.tensors[name]
        n = t.shape[-1]
        for part in parts:

            def read(part: RowSlice = part) -> np.ndarray:
                x = coding.decode(t.type, part.read().reshape(part.n, -1), np.empty((part.n, n), np.float32))
                rotated = x * self.signs[n].astype(np.float32)
                part.done()
                transform(rotated, self.block)
                return rotated.view(np.uint8).reshape(-1)

            yield RowSlice(part.n, read, lambda: None)

    def is_read(self, path: Path) -> bool:
        return self.source.is_read(path)

    def importance(self, imatrix: Imatrix) -> Imatrix:
        """The importance matrix for the rotated columns, of one for the original columns.

        A rotated input is a sum of a block's inputs with random signs: its mean square is that of the block.
        """
        entries = dict(imatrix.entries)
        for t in self.rotated:
            if entry := entries.get(t.name):
                blocks = entry.sums.reshape(len(entry.sums), -1, self.block).mean(axis=2)
                entries[t.name] = InputSums(np.repeat(blocks, self.block, axis=1), entry.counts)
        return replace(imatrix, entries=entries)
