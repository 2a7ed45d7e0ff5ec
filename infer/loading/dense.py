"""Dense layers that make the vector of a text from its pooled rows: dense_2, then dense_3 (EmbeddingGemma, ColBERT)."""

from dataclasses import dataclass

import numpy as np

from hybrid.quant.ggml.errors import FormatError
from hybrid.quant.ggml.reader import GGUFFile

from .weights import Weights

NAMES = ("dense_2", "dense_3")


@dataclass(frozen=True, eq=False)
class Dense:
    """The layers of one file: weights f64 [outputs, inputs], and biases f64 [outputs] or None."""

    layers: tuple[tuple[np.ndarray, np.ndarray | None], ...]

    @classmethod
    def read(cls, gguf: GGUFFile, n_embd: int) -> "Dense":
        """The layers of an open file, perhaps none. FormatError: they do not fit each other."""
        w, n, layers = Weights(gguf), n_embd, []
        for name in NAMES:
            if f"{name}.weight" not in w:
                continue
            shape = gguf.info(f"{name}.weight").shape
            if len(shape) != 2 or shape[1] != n:
                raise FormatError(
                    f"{gguf.path.name}: {name}.weight has shape {list(shape)}, expected rows of {n} values. "
                    "Convert the model again."
                )
            bias = w.array(f"{name}.bias", shape[0]).astype(np.float64) if f"{name}.bias" in w else None
            layers.append((w.array(f"{name}.weight", *shape).astype(np.float64), bias))
            n = shape[0]
        return cls(tuple(layers))

    def __bool__(self) -> bool:
        return bool(self.layers)

    def n_out(self, n_embd: int) -> int:
        """The width of a vector made of n_embd values."""
        return len(self.layers[-1][0]) if self.layers else n_embd

    def apply(self, x: np.ndarray) -> np.ndarray:
        """The vector of a pooled row, f64 [n_embd] -> f64 [n_out]."""
        for weight, bias in self.layers:
            # not `@`: the bits of BLAS depend on its threads
            x = np.einsum("ij,j->i", weight, x)
            x = x if bias is None else x + bias
        return x


NO_LAYERS = Dense(())
