"""Gives the tensors of a GGUF file to the layers: checks their shapes, and that every tensor is used."""

from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import contextmanager

import numpy as np

from hybrid.quant.ggml.adapter import Adapter
from hybrid.quant.ggml.errors import FormatError, UnsupportedError, shown
from hybrid.quant.ggml.families.hparams import wrong
from hybrid.quant.ggml.machine_memory import machine_memory
from hybrid.quant.ggml.reader import GGUFFile
from hybrid.quant.ggml.rotation import EMBEDDING, rotation_of
from hybrid.quant.ggml.scales import input_scale_of, scale_of
from hybrid.quant.ggml.types import NOT_WEIGHTS, TRAITS, GGMLType

from ..program.builder import Weight, aligned_empty, round_up
from ..program.operands import RowRotation
from .low_rank import low_rank

# Tensors that need not be used: written by converters for other engines, or derived from the metadata.
OPTIONAL = ("rope_freqs.weight",)
OUTPUT = "output.weight"  # without it the embedding is the output matrix, which is read whole
# Prefixes of the tensors that change a text's vector, or make scores of it (classifier.py, dense.py).
OF_HEADS = ("cls.", "dense_2.", "dense_3.")


class Weights:
    """Hands out matrices (mapped, not copied) and addresses of vectors (f32 copies), and keeps their memory alive."""

    def __init__(self, gguf: GGUFFile, adapters: Sequence[Adapter] = (), n_ctx: int = 0) -> None:
        self.gguf, self.adapters = gguf, adapters
        self.fits = gguf.nbytes <= machine_memory().available
        # tokens of a sequence; long contexts have other weights in some models; 0: not long
        self.n_ctx = n_ctx
        self.rotation = rotation_of(gguf)
        self.used: set[str] = set()
        self.looked_up: set[str] = set()  # tables of which a pass reads only a few rows
        self.matrices: list[Weight] = []
        self.kept: list[np.ndarray] = []
        self.nbytes_padded = 0
        self.shared: dict[Hashable, int] = {}  # addresses of values that several layers use
        self.reached = 0  # number of positions that tables are filled for
        # noted by layers: the tokens of a picture see each other; their positions have three axes
        self.is_together = self.has_axes = False
        self._tables: list[Callable[[int], None]] = []

    def __contains__(self, name: str) -> bool:
        return name in self.gguf.tensors

    def _check(self, name: str, shape: tuple[int, ...]) -> None:
        stored = self.gguf.info(name).shape
        if stored != shape:
            raise FormatError(
                f"{self.gguf.path.name}: {name} has shape {list(stored)}, expected {list(shape)} by the model's keys. "
                "Convert the model again."
            )
        self.used.add(name)

    def wrong(self, key: str, value: object, expected: str) -> FormatError:
        """The error for a hyper-parameter with which a layer cannot work. key: without the architecture's prefix."""
        return wrong(self.gguf, f"{self.gguf.get('general.architecture')}.{key}", value, expected)

    def matrix(self, name: str, rows: int, n: int) -> Weight:
        """`rows` rows of `n` weights, as stored. One row may be stored as a vector: GGUF does not tell them apart."""
        self._check(name, (n,) if rows == 1 and len(self.gguf.info(name).shape) == 1 else (rows, n))
        return self._weight(name, rows, n, 1)

    def experts(self, name: str, n_expert: int, rows: int, n: int, *, factors: bool = True) -> Weight:
        """A stack of `n_expert` matrices. factors: its tensor of factors (quant/ggml/scales.py), if there is any,
        multiplies products; False: the layer reads it."""
        self._check(name, (n_expert, rows, n))
        fetched = not self.fits and n_expert > 1
        if fetched:
            self.gguf.expect_parts(name)
        return self._weight(name, rows, n, n_expert, factors=factors, fetched=fetched)

    def embedding(self, name: str, n: int) -> Weight:
        """A matrix with as many rows (the vocabulary) as the file has."""
        shape = self.gguf.info(name).shape
        if len(shape) != 2 or shape[1] != n:
            raise FormatError(f"{self.gguf.path.name}: {name} has shape {list(shape)}, expected [vocabulary, {n}].")
        self.used.add(name)
        self.looked_up.add(name)
        if not self.fits and OUTPUT in self.gguf.tensors:
            self.gguf.expect_parts(name)
        return self._weight(name, shape[0], n, 1)

    def _weight(
        self, name: str, rows: int, n: int, n_expert: int, *, factors: bool = True, fetched: bool = False
    ) -> Weight:
        kind = self.gguf.info(name).type
        if kind in NOT_WEIGHTS:
            where = self.gguf.path.name
            raise FormatError(f"{where}: {name} is {kind.name}, expected weights. Convert the model again.")
        raw = np.atleast_2d(self.gguf.raw(name))
        multiple = 32 if TRAITS[kind].block > 1 else 16
        padded = round_up(n, multiple)
        if padded != n:
            # products read whole groups of 16 or 32 values; matrices with other row lengths are small, copies are cheap
            size = TRAITS[kind].nbytes
            copy = aligned_empty(raw.size // (n * size) * padded * size).reshape(-1, padded * size)
            copy[:, n * size :] = 0
            copy[:, : n * size] = raw.reshape(-1, n * size)
            raw = copy
            self.nbytes_padded += copy.nbytes
        factor = self._factors(name, n_expert) if factors else 0
        added = low_rank(self.adapters, self.keep, name, n_expert, rows, n)
        weight = Weight(
            name, kind, rows, padded, raw.ctypes.data, raw.strides[-2], n_expert, raw, added, factors=factor,
            rotation=self._rotation(name, n), fetched=fetched,
        )  # fmt: skip
        self.matrices.append(weight)
        return weight

    def plain(self, name: str, rows: int, n: int) -> tuple[np.ndarray, GGMLType]:
        """A matrix from which a layer makes others, and its type: as stored if that is a float type (16 bits: u16),
        otherwise decoded."""
        self._check(name, (rows, n))
        kind = self.gguf.info(name).type
        if kind in (GGMLType.F16, GGMLType.BF16):
            return self.gguf.raw(name).view("<u2"), kind
        return self.array(name, rows, n), GGMLType.F32

    def stack(self, name: str, values: np.ndarray, kind: GGMLType) -> Weight:
        """A stack of matrices [n_expert, rows, n] that a layer has made of values of `plain`."""
        n_expert, rows, n = values.shape
        padded, size = round_up(n, 16), values.itemsize
        raw = aligned_empty(n_expert * rows * padded * size)
        copy = raw.view(values.dtype).reshape(n_expert, rows, padded)
        copy[:, :, :n], copy[:, :, n:] = values, 0
        self.nbytes_padded += copy.nbytes
        weight = Weight(name, kind, rows, padded, raw.ctypes.data, padded * size, n_expert, copy)
        self.matrices.append(weight)
        return weight

    def _rotation(self, name: str, n: int) -> RowRotation | None:
        """The rotation of a matrix with rows of n values."""
        rotation = self.rotation
        if rotation is None or not (name in rotation.folded or (name == EMBEDDING and rotation.restored)):
            return None
        key = "signs", n
        if key not in self.shared:
            self.shared[key] = self.keep(rotation.signs[n])
        places = rotation.places(name, n)
        moved = "places", n
        if places is not None and moved not in self.shared:
            self.shared[moved] = self.keep(places)
        return RowRotation(rotation.block, self.shared[key], 0 if places is None else self.shared[moved])

    def _factors(self, name: str, n_expert: int) -> int:
        """Address of the factors of a matrix; 0 without any. Inputs are not quantized by scales: theirs are ignored."""
        if (of_inputs := input_scale_of(name)) in self:
            self.ignore(of_inputs)
        factor = scale_of(name)
        return self.vector(factor, n_expert) if factor in self else 0

    def array(self, name: str, *shape: int) -> np.ndarray:
        """The values as f32. Raises FormatError for NaN or infinity, which would silently spoil every result."""
        self._check(name, shape)
        values = np.ascontiguousarray(self.gguf.f32(name), np.float32)
        if not np.isfinite(values).all():
            raise FormatError(f"{self.gguf.path.name}: {name} contains NaN or infinity. Convert the model again.")
        return values

    def integers(self, name: str, *shape: int) -> np.ndarray:
        """The values of a table of integers, i32."""
        self._check(name, shape)
        kind = self.gguf.info(name).type
        if kind is not GGMLType.I32:
            raise FormatError(f"{self.gguf.path.name}: {name} is {kind.name}, expected I32. Convert the model again.")
        return np.ascontiguousarray(self.gguf.raw(name)).view("<i4").reshape(shape).astype(np.int32)

    def squeezed(self, name: str, *shape: int) -> np.ndarray:
        """`array` of a tensor that may be stored with or without dimensions of size 1."""
        stored = self.gguf.info(name).shape
        plain = tuple(n for n in stored if n != 1)
        return self.array(name, *(stored if plain == tuple(n for n in shape if n != 1) else shape)).reshape(shape)

    def vector(self, name: str, n: int, prepare: Callable[[np.ndarray], np.ndarray] | None = None) -> int:
        """Address of a copy of `n` f32 values, changed by `prepare`."""
        values = self.array(name, n)
        return self.keep(prepare(values) if prepare else values)

    @property
    def nbytes_copied(self) -> int:
        """Bytes of copies, in addition to the mapped file."""
        return self.nbytes_padded + sum(values.nbytes for values in self.kept)

    def ignore(self, *names: str) -> None:
        """Allow tensors that the model does not use."""
        self.used.update(names)

    def ignore_block(self, i: int) -> None:
        """Allow all tensors of block i, which is not run."""
        self.ignore(*(name for name in self.gguf.tensors if name.startswith(f"blk.{i}.")))

    def keep(self, values: np.ndarray) -> int:
        """Address of a contiguous copy, aligned to 64 bytes, that lives as long as this object."""
        copy = aligned_empty(values.nbytes).view(values.dtype).reshape(values.shape)
        copy[...] = values
        self.kept.append(copy)
        return int(copy.ctypes.data)

    def reaches(self, fill: Callable[[int], None]) -> None:
        """Register `fill`: fill(n) prepares tables for positions below n. Called now, and when texts get longer."""
        self._tables.append(fill)
        fill(self.reached)

    def reach(self, n: int) -> None:
        """Prepare the tables for positions below n."""
        if n > self.reached:
            for fill in self._tables:
                fill(n)
            self.reached = n

    @contextmanager
    def trial(self) -> Iterator[None]:
        """Forget the tables registered within this context: for programs that never run."""
        shared, tables = dict(self.shared), list(self._tables)
        try:
            yield
        finally:
            self.shared, self._tables = shared, tables

    def finish(self, blocks: range | None = None) -> None:
        """Raise FormatError unless every tensor of the file (or of `blocks`) was used, and every adapter matrix."""
        own = None if blocks is None else tuple(f"blk.{i}." for i in blocks)
        theirs = [t for t in self.gguf.tensors if own is None or t.startswith(own)]
        left = [t for t in theirs if t not in self.used and t not in OPTIONAL and not t.startswith(OF_HEADS)]
        if left:
            names = ", ".join(map(shown, left[:3])) + (f" and {len(left) - 3} more" if len(left) > 3 else "")
            raise FormatError(
                f"{self.gguf.path.name}: {names}: this architecture has no such tensor. "
                "The result would be wrong without it; convert the model again."
            )
        if self.rotation:
            unmoved = self.rotation.folded.intersection(theirs).difference(matrix.name for matrix in self.matrices)
            if unmoved:
                raise UnsupportedError(
                    f"{self.gguf.path.name}: {shown(min(unmoved))} is rotated, but is no matrix of a product here. The "
                    "result would be noise; use another file of this model."
                )
        if blocks is not None:
            return  # an adapter may also have matrices for other blocks

        known = {matrix.name for matrix in self.matrices if matrix.adapters}
        for adapter in self.adapters:
            without = [name for name in adapter.names if name not in known]
            if without:
                more = f" and {len(without) - 3} more" if len(without) > 3 else ""
                raise FormatError(
                    f"{shown(adapter.path.name)} adapts {', '.join(map(shown, without[:3]))}{more}: this model has no "
                    "such matrices. The adapter was made for another one."
                )

    def kinds(self) -> set[GGMLType]:
        return {w.kind for w in self.matrices}
