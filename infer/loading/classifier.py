"""The head of models that score texts or pairs of texts, as llama.cpp's build_pooling: tensors `cls.*`.

    x = activation(x * cls + bias);  x = norm(x) * cls.norm;  scores = x * cls.output + bias

All but cls.output may be missing. x is one vector of a text, so the head computes in float64, one text after the other.
"""

import math
from dataclasses import dataclass

import numpy as np

from hybrid.quant.ggml.errors import FormatError, shown
from hybrid.quant.ggml.families.hparams import wrong
from hybrid.quant.ggml.metadata import StringArray
from hybrid.quant.ggml.reader import GGUFFile

from .weights import Weights

RANK = 4  # `pooling_type` of models with such a head
_MOST_LABELS = 1 << 16


def has_head(gguf: GGUFFile) -> bool:
    """Whether the model of an open file scores texts, and so makes no embeddings of its own."""
    arch = gguf.get("general.architecture", "")
    return "cls.output.weight" in gguf.tensors or gguf.get(f"{arch}.pooling_type", 0) == RANK


@dataclass(frozen=True, eq=False)
class Classifier:
    """The head of one file. Arrays are f64, matrices [outputs, n_embd]."""

    labels: tuple[str, ...]
    dense: np.ndarray | None
    dense_bias: np.ndarray | None
    gelu: bool  # the activation after `dense`; otherwise tanh
    norm: np.ndarray | None
    eps: float
    output: np.ndarray
    output_bias: np.ndarray | None

    @classmethod
    def read(cls, gguf: GGUFFile, n_embd: int, eps: float) -> "Classifier | None":
        """The head of an open file; None without any. FormatError: of other shapes, or with other labels."""
        arch, w = gguf.get("general.architecture", ""), Weights(gguf)
        name = "cls.output.weight"
        if name not in w:
            if "cls.weight" not in w and gguf.get(f"{arch}.pooling_type", 0) != RANK:
                return None
            raise FormatError(f"{gguf.path.name} has no {name}, the head that scores texts. Convert the model again.")
        shape = gguf.info(name).shape
        n_labels = 1 if len(shape) == 1 else shape[0]  # one row may be stored as a vector

        def array(name: str, *shape: int) -> np.ndarray | None:
            return w.array(name, *shape).astype(np.float64) if name in w else None

        output = w.array(name, *(shape[:1] if len(shape) == 2 else ()), n_embd)
        return cls(
            labels=_labels(gguf, f"{arch}.classifier.output_labels", n_labels),
            dense=array("cls.weight", n_embd, n_embd),
            dense_bias=array("cls.bias", n_embd),
            gelu=arch == "modern-bert",
            norm=array("cls.norm.weight", n_embd),
            eps=eps,
            output=output.reshape(n_labels, n_embd).astype(np.float64),
            output_bias=array("cls.output.bias", n_labels),
        )

    @property
    def n_labels(self) -> int:
        return len(self.labels)

    def scores(self, x: np.ndarray) -> np.ndarray:
        """The score of every label, f64 [n_labels], of a text's vector [n_embd]: before any softmax or sigmoid."""
        x = x.astype(np.float64)
        if self.dense is not None:
            x = _linear(x, self.dense, self.dense_bias)
            x = _gelu(x) if self.gelu else np.tanh(x)
        if self.norm is not None:
            x = x - x.mean()
            x = x / math.sqrt(np.square(x).mean() + self.eps) * self.norm
        return _linear(x, self.output, self.output_bias)


def _linear(x: np.ndarray, weight: np.ndarray, bias: np.ndarray | None) -> np.ndarray:
    # not `@`: the bits of BLAS depend on its threads
    y: np.ndarray = np.einsum("ij,j->i", weight, x)
    return y if bias is None else y + bias


def _gelu(x: np.ndarray) -> np.ndarray:
    halves = np.array([(1 + math.erf(value / math.sqrt(2))) / 2 for value in x])
    return np.asarray(x * halves)


def _labels(gguf: GGUFFile, key: str, n: int) -> tuple[str, ...]:
    stated = gguf.get(key, None)
    if stated is None:
        return tuple(f"LABEL_{i}" for i in range(n))
    labels = stated.tolist() if isinstance(stated, np.ndarray | StringArray) else stated
    if not isinstance(labels, list) or len(labels) != n or not all(isinstance(label, str) for label in labels):
        raise wrong(gguf, key, labels, f"{n} names, one for each row of cls.output.weight")
    return tuple(shown(label, 200) for label in labels)
