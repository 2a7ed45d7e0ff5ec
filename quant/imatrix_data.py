"""The contents of an importance matrix, for both file formats: `imatrix` reads and writes llama.cpp's GGUF,
`imatrix_legacy` the older format."""

from dataclasses import dataclass, field
from pathlib import Path

import numpy as np


@dataclass(eq=False)
class InputSums:
    """Sums for a weight matrix: squares of inputs f32 [matrix, column], counts of rows f32 [matrix]."""

    sums: np.ndarray
    counts: np.ndarray

    def of(self, matrices: int) -> "InputSums":
        """The same sums for `matrices` matrices, if a file stored them as one (`imatrix_legacy`)."""
        if len(self.sums) != 1 or self.sums.size % matrices:
            return self
        return InputSums(self.sums.reshape(matrices, -1), np.repeat(self.counts, matrices))

    def importance(self) -> np.ndarray:
        """f32 [matrix, column]: mean squares; 1 for an unused expert, as in llama-quantize."""
        counts = self.counts[:, None].astype(np.float32)
        return np.where(counts > 0, self.sums / np.maximum(counts, 1), np.float32(1)).astype(np.float32)


@dataclass
class ImatrixData:
    """Sums by the name of the weight matrix. `chunk_size` in tokens."""

    entries: dict[str, InputSums] = field(default_factory=dict)
    datasets: list[str] = field(default_factory=list)
    chunk_count: int = 0
    chunk_size: int = 0
    path: Path | None = None
