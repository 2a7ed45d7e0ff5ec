"""A source without some of its layers: the others get new numbers, and keys that go by the layer are adjusted."""

import math
import re
from collections.abc import Collection, Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from .ggml.errors import UnsupportedError, UsageError, shown
from .ggml.families.hparams import Hparams
from .ggml.families.layer_keys import without_layers
from .ggml.header import Header
from .ggml.reader import TensorInfo
from .ggml.rotation import PREFIX
from .ggml.scales import TENSOR_EXTRA
from .ggml.types import TRAITS, row_nbytes
from .imatrix import Imatrix
from .source import RowSlice, Source, Writer
from .tensor_parts import Spread, TensorPart

_BLOCK = re.compile(r"blk\.([0-9]{1,9})\.")
_ROTATED = (f"{PREFIX}weight_names", f"{PREFIX}inverse_weight_names")


def parsed_layers(text: str) -> list[int]:
    """The layers of a text such as 3,5-8, in order. UsageError: it is not such a text."""
    layers: set[int] = set()
    for part in text.split(","):
        match = re.fullmatch(r"\s*([0-9]{1,6})(?:-([0-9]{1,6}))?\s*", part)
        first, last = (int(match[1]), int(match[2] or match[1])) if match else (0, -1)
        if last < first:
            raise UsageError(f"{shown(text)} are not layers: expected numbers and ranges of them, for example 3,5-8.")
        layers.update(range(first, last + 1))
    return sorted(layers)


class PrunedSource:
    """Implements `Source`. Tensors, errors and reports have the new names.

    before, after: the headers of the source and of the new model. hparams: of the source. kept: the old numbers of the
    layers left.
    """

    def __init__(self, source: Source, layers: Collection[int], hparams: type[Hparams]) -> None:
        """layers: those left out. UsageError: there is no such layer, or none is left."""
        self.source, self.path = source, source.path
        self.before = Header(source.path, source.metadata, source.tensors, self._read)
        arch = str(self.before.get("general.architecture"))
        self.hparams = hparams.read(self.before, arch)
        n_layer = self.hparams.n_layer
        if strange := [i for i in layers if not 0 <= i < n_layer]:
            raise UsageError(
                f"{shown(self.path)} has layers 0 to {n_layer - 1}: there is no layer {strange[0]} to leave out."
            )
        self.kept = [i for i in range(n_layer) if i not in layers]
        if not self.kept:
            raise UsageError(f"no layer of {shown(self.path)} would be left. Leave out fewer.")
        self._numbers = {old: new for new, old in enumerate(self.kept)}
        names = ((name, self._new(name)) for name in source.tensors)
        self._names = {old: new for old, new in names if new}
        self._olds = {new: old for old, new in self._names.items()}
        self.tensors = {new: self._info(old, new) for old, new in self._names.items()}
        parts = ([self._names[name] for name in part if name in self._names] for part in source.parts)
        self.parts = [part for part in parts if part]
        self._changed = without_layers(self.before, arch, self.hparams, self.kept)
        self._changed |= self._of_names()
        left = {key: value for key, value in source.metadata.items() if key not in self._changed}
        self.metadata = {**left, **{key: value for key, value in self._changed.items() if value is not None}}
        named = self.path.with_name(f"{self.path.name} without {layers_text(layers)}")
        self.after = Header(named, self.metadata, self.tensors, lambda name: joined(self.slices(name, 1 << 20)))

    def _of_names(self) -> dict[str, Any]:
        """The keys that name tensors, or have a value for each named one; None: none is left."""
        stated, names = self.before.metadata, self._names
        changed = {key: [names[name] for name in stated[key] if name in names] for key in _ROTATED if key in stated}
        extra = list(stated.get(f"{TENSOR_EXTRA}name", ()))
        for key in stated:
            if key.startswith(TENSOR_EXTRA) and len(stated[key]) == len(extra):
                pairs = [(name, value) for name, value in zip(extra, stated[key], strict=True) if name in names]
                changed[key] = [names[name] if key.endswith(".name") else value for name, value in pairs]
        return {key: value or None for key, value in changed.items()}

    def _new(self, name: str) -> str:
        """The new name of a tensor; "" if its layer is left out."""
        block = _BLOCK.match(name)
        if block is None:
            return name
        number = self._numbers.get(int(block[1]))
        return "" if number is None else f"blk.{number}.{name[block.end() :]}"

    def _read(self, name: str) -> np.ndarray:
        """The bytes of a tensor of the source."""
        return joined(self.source.slices(name, 1 << 20))

    def _info(self, old: str, new: str) -> TensorInfo:
        """UnsupportedError: the tensor has a part for each layer, and these are not whole blocks."""
        t = self.source.tensors[old]
        if old not in self.hparams.in_parts:
            return replace(t, name=new)
        at, n = self.hparams.in_parts[old], self.hparams.n_layer
        shape = list(t.shape)
        shape[at] = shape[at] // n * len(self.kept)
        if t.shape[at] % n or (at and t.shape[at] // n % TRAITS[t.type].block):
            raise UnsupportedError(
                f"{shown(self.path)}: the {t.shape[at]} values of {old} cannot be divided among {n} layers in "
                f"{t.type.name}. Start from the F32, F16 or BF16 file."
            )
        nbytes = math.prod(shape[:-1]) * row_nbytes(t.type, shape[-1])
        return replace(t, name=new, shape=tuple(shape), nbytes=nbytes)

    @property
    def nbytes(self) -> int:
        return self.source.nbytes

    def describe(self, writer: Writer) -> None:
        self.source.describe(writer)
        for key, value in self._changed.items():
            if value is None:
                writer.drop(key)
            else:
                writer.add(key, value)

    def slices(self, name: str, rows: int) -> Iterator[RowSlice]:
        slices = self.source.slices(self._olds[name], rows)
        at = self.hparams.in_parts.get(self._olds[name])
        return slices if at is None else self._kept_rows(name, slices) if at == 0 else map(self._kept_columns, slices)

    def _kept_columns(self, part: RowSlice) -> RowSlice:
        def read() -> np.ndarray:
            return part.read().reshape(part.n, self.hparams.n_layer, -1)[:, self.kept].reshape(-1)

        return replace(part, read=read)

    def _kept_rows(self, name: str, slices: Iterable[RowSlice]) -> Iterator[RowSlice]:
        each = self.tensors[name].shape[0] // len(self.kept)  # rows of a layer
        start = 0
        for part in slices:
            rows = np.arange(start, start + part.n) // each
            taken = np.isin(rows, self.kept)
            start += part.n
            if taken.any():
                read = lambda part=part, taken=taken: part.read().reshape(part.n, -1)[taken].reshape(-1)
                yield replace(part, n=int(taken.sum()), read=read)

    def is_read(self, path: Path) -> bool:
        return self.source.is_read(path)

    def spread(self, spread: Spread) -> Spread:
        """`spread` of the source: its workers know tensors by their old names. UnsupportedError: they would have to cut
        a tensor."""
        if cut := next((name for name in self.hparams.in_parts if name in self.tensors), None):
            raise UnsupportedError(f"workers do not cut {cut}, which has a part for each layer. Work in one process.")

        def old(part: TensorPart) -> TensorPart:
            return replace(part, tensor=replace(part.tensor, name=self._olds[part.tensor.name]))

        return lambda parts: spread(map(old, parts))

    def importance(self, imatrix: Imatrix) -> Imatrix:
        """The importance matrix for the new model, from one of the source."""
        entries = {
            self._names.get(name, name): entry
            for name, entry in imatrix.entries.items()
            if name in self._names or name not in self.source.tensors
        }
        return replace(imatrix, entries=entries)


def joined(slices: Iterable[RowSlice]) -> np.ndarray:
    return np.concatenate([part.read() for part in slices])


def layers_text(layers: Iterable[int]) -> str:
    """A few numbers of layers as a text: "layers 3, 5 to 8"."""
    runs: list[list[int]] = []
    for i in sorted(layers):
        if runs and runs[-1][-1] == i - 1:
            runs[-1].append(i)
        else:
            runs.append([i])
    text = ", ".join(f"{run[0]} to {run[-1]}" if len(run) > 1 else str(run[0]) for run in runs)
    return f"layer {text}" if len(runs) == 1 and len(runs[0]) == 1 else f"layers {text}"
