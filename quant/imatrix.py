"""Importance matrices: squares of the inputs of each weight matrix's columns, summed over a text.

The file is llama.cpp's (GGUF, `general.type` = "imatrix"): for a matrix T

    T.in_sum2   F32 [matrix, column]   sum of the squares of the inputs of each column; a matrix for each expert
    T.counts    F32 [matrix, 1]        number of input rows that were summed

and imatrix.datasets (names of texts), imatrix.chunk_count, imatrix.chunk_size (tokens). The importance of a column is
in_sum2 / counts, the mean square of its input.
"""

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from .ggml.errors import FormatError, Remedy, UsageError, shown
from .ggml.reader import MAGIC, GGUFFile
from .ggml.sources import check_source
from .ggml.types import GGMLType, ValueType
from .ggml.writer import GGUFWriter
from .imatrix_data import ImatrixData, InputSums
from .imatrix_legacy import read_legacy, write_legacy

_BLOCK = re.compile(r"blk\.(\d+)\.(.*)")
_SUMS, _COUNTS = ".in_sum2", ".counts"


@dataclass(frozen=True)
class Statistics:
    """Statistics of the mean squares of a matrix's inputs, with llama-imatrix's definitions.

    active: share of columns above 1e-5; entropy in bits, evenness: as a share of the largest possible; outliers: share
    of columns more than a standard deviation above the mean; similarity: cosine with the sums of the same matrix one
    layer before; None if that matrix has another size, or is missing.
    """

    name: str
    n: int
    total: float
    least: float
    most: float
    mean: float
    deviation: float
    active: float
    entropy: float
    evenness: float
    outliers: float
    similarity: float | None


@dataclass
class Imatrix(ImatrixData):
    """An importance matrix that can be read, written, merged and checked."""

    @classmethod
    def read(cls, path: Path | str) -> "Imatrix":
        """Reads a file. FormatError: not an importance matrix, or impossible sums."""
        path = Path(path)
        if _is_legacy(path):
            return cls(**read_legacy(path).__dict__)
        with GGUFFile.open(path) as file:
            if file.get("general.type", "") != "imatrix":
                raise FormatError(
                    f"{shown(path)} is not an importance matrix: general.type is not imatrix.",
                    remedy=Remedy.MAKE_IMATRIX,
                )
            imatrix = cls(
                datasets=[str(name) for name in file.get("imatrix.datasets", [])],
                chunk_count=int(file.get("imatrix.chunk_count", 0)),
                chunk_size=int(file.get("imatrix.chunk_size", 0)),
                path=path,
            )
            for name in file.tensors:
                if not name.endswith(_SUMS):
                    continue
                weight = name.removesuffix(_SUMS)
                counts = np.array(file.f32(weight + _COUNTS), np.float32).reshape(-1)
                sums = np.array(file.f32(name), np.float32)
                if sums.size % counts.size:
                    raise FormatError(
                        f"{shown(path)}: {shown(weight)} has {sums.size} sums for {counts.size} counts. Copy it again."
                    )
                sums = sums.reshape(counts.size, -1)
                if not (np.isfinite(sums).all() and np.isfinite(counts).all() and min(sums.min(), counts.min()) >= 0):
                    raise FormatError(
                        f"{shown(path)}: not all sums of {shown(weight)} are finite and positive. Collect them again."
                    )
                imatrix.entries[weight] = InputSums(sums, counts)
        if not imatrix.entries:
            raise FormatError(f"{shown(path)} holds no importance of any tensor.", remedy=Remedy.MAKE_IMATRIX)
        return imatrix

    def write(self, path: Path | str) -> None:
        """Writes GGUF, or llama-imatrix's older format if the name ends in .dat."""
        if Path(path).suffix == ".dat":
            write_legacy(self, Path(path))
            return
        with GGUFWriter(path, None) as writer:
            writer.add("general.type", "imatrix", ValueType.STRING)
            writer.add("imatrix.datasets", self.datasets, ValueType.STRING)
            writer.add("imatrix.chunk_count", self.chunk_count, ValueType.UINT32)
            writer.add("imatrix.chunk_size", self.chunk_size, ValueType.UINT32)
            data: dict[str, np.ndarray] = {}
            for name, entry in sorted(self.entries.items()):
                data[name + _SUMS] = entry.sums.astype(np.float32)
                data[name + _COUNTS] = entry.counts.astype(np.float32).reshape(-1, 1)
            for name, values in data.items():
                writer.declare(name, values.shape, GGMLType.F32)
            for name, values in data.items():
                writer.write(name, values)

    def merge(self, other: "Imatrix") -> None:
        """Adds the sums of another one. FormatError: shapes differ, or each has matrices that the other lacks.

        Matrices of experts may be missing: llama-imatrix leaves out unused experts.
        """
        more, fewer = (
            sorted(name for name in a.entries.keys() - b.entries.keys() if "_exps" not in name)
            for a, b in ((other, self), (self, other))
        )
        if more and fewer:
            raise FormatError(
                f"{_where(other)} is of another model than the others: it has {shown(more[0])} and not "
                f"{shown(fewer[0])}. Merge matrices of one model."
            )
        for name, entry in other.entries.items():
            mine = self.entries.get(name)
            if mine is not None and mine.sums.size == entry.sums.size:
                # one of the two may not know how many experts it is of
                matrices = max(len(mine.sums), len(entry.sums))
                mine, entry = mine.of(matrices), entry.of(matrices)
                self.entries[name] = mine
            if mine is None:
                self.entries[name] = InputSums(entry.sums.copy(), entry.counts.copy())
                continue
            if mine.sums.shape != entry.sums.shape:
                raise FormatError(
                    f"{_where(other)}: {shown(name)} has {_by(entry.sums)} sums where the others have "
                    f"{_by(mine.sums)}. Merge matrices of one model."
                )
            mine.sums, mine.counts = mine.sums + entry.sums, mine.counts + entry.counts
        self.chunk_count += other.chunk_count
        self.chunk_size = self.chunk_size or other.chunk_size
        self.datasets += [name for name in other.datasets if name not in self.datasets]

    def chosen(self, include: Collection[str] = (), exclude: Collection[str] = ()) -> "Imatrix":
        """The matrices whose names contain a text of `include` (if any) and no text of `exclude`.

        UsageError: none are left.
        """

        def kept(name: str) -> bool:
            wanted = not include or any(part in name for part in include)
            return wanted and not any(part in name for part in exclude)

        entries = {name: entry for name, entry in self.entries.items() if kept(name)}
        if not entries:
            raise UsageError(
                f"{_where(self)}: no matrix of it is included and not excluded.", remedy=Remedy.IMATRIX_PATTERNS
            )
        return Imatrix(entries, self.datasets, self.chunk_count, self.chunk_size, self.path)

    def statistics(self) -> list[Statistics]:
        """Statistics of all matrices with inputs; experts without inputs are left out."""
        statistics = []
        for name, entry in self.entries.items():
            used = entry.counts > 0
            if not used.any():
                continue
            x = (entry.sums[used].astype(np.float64) / entry.counts[used, None]).reshape(-1)
            total, deviation = float(x.sum()), float(x.std())
            p = x[x > 0] / total if total > 0 else np.ones(1)
            entropy = float(-(p * np.log2(p)).sum())
            statistics.append(
                Statistics(
                    name, x.size, total, float(x.min()), float(x.max()), float(x.mean()), deviation,
                    float((x > 1e-5).mean()), entropy, entropy / np.log2(x.size) if x.size > 1 else 1.0,
                    float(((x - x.mean()) > deviation).mean()) if deviation > 0 else 0.0, self._similarity(name),
                )
            )  # fmt: skip
        return statistics

    def _similarity(self, name: str) -> float | None:
        block = _BLOCK.match(name)
        before = self.entries.get(f"blk.{int(block[1]) - 1}.{block[2]}") if block else None
        if before is None or before.sums.shape != self.entries[name].sums.shape:
            return None
        a, b = (entry.sums.astype(np.float64).reshape(-1) for entry in (self.entries[name], before))
        size = float(np.sqrt((a * a).sum() * (b * b).sum()))
        return float((a * b).sum()) / size if size else None

    def check(self, shapes: Mapping[str, tuple[int, ...]]) -> None:
        """UsageError unless the matrices belong to a model with tensors of these shapes (numpy order).

        Entries without a number of experts get theirs from the shapes.
        """
        for name, entry in list(self.entries.items()):
            if name not in shapes:
                raise UsageError(
                    f"{_where(self)} is of another model: this one has no tensor {shown(name)}. "
                    "Collect it for this model."
                )
            shape = shapes[name]
            expected = (shape[0] if len(shape) > 2 else 1, shape[-1])
            if entry.sums.shape == (1, expected[0] * expected[1]):
                entry = self.entries[name] = entry.of(expected[0])
            if entry.sums.shape != expected:
                raise UsageError(
                    f"{_where(self)} is of another model: {shown(name)} has {_by(entry.sums)} sums, this model needs "
                    f"{expected[0]} x {expected[1]}. Collect it for this model."
                )


def _is_legacy(path: Path) -> bool:
    """Whether the path is a file that is not GGUF."""
    try:
        check_source(path, "an importance matrix")
        with path.open("rb") as file:
            return file.read(4) != MAGIC
    except OSError:
        return False


def _where(imatrix: Imatrix) -> str:
    return shown(imatrix.path) if imatrix.path else "the importance matrix"


def _by(a: np.ndarray) -> str:
    return " x ".join(map(str, a.shape))
