"""Pooling: makes one vector of a text from the hidden states of its tokens."""

from enum import StrEnum

import numpy as np

from hybrid.quant.ggml.errors import HybridError, Remedy, UnsupportedError
from hybrid.quant.ggml.families.hparams import wrong
from hybrid.quant.ggml.reader import GGUFFile

from ..loading.classifier import RANK


class Pooling(StrEnum):
    """Which tokens the vector of a text is made from."""

    CLS = "cls"  # its first token
    MEAN = "mean"  # all of its tokens
    LAST = "last"  # its last token

    def outputs(self, begin: int, end: int, n: int) -> slice:
        """Which of tokens begin..end of a text of n tokens are needed, counted from `begin`."""
        if self is Pooling.MEAN:
            return slice(None)
        at = 0 if self is Pooling.CLS else n - 1
        return slice(at - begin, at - begin + 1) if begin <= at < end else slice(0, 0)


# GGUF's `pooling_type`. 0: no pooling, 4: the scores of a head (loading/classifier.py), which makes no embedding.
_POOLING = {1: Pooling.MEAN, 2: Pooling.CLS, 3: Pooling.LAST}


def stated_pooling(gguf: GGUFFile) -> Pooling | None:
    """The file's pooling, or None. Raises UnsupportedError or FormatError for other values."""
    arch = gguf.get("general.architecture", "")
    number = gguf.get(f"{arch}.pooling_type", 0)
    if not isinstance(number, int) or isinstance(number, bool):
        raise wrong(gguf, f"{arch}.pooling_type", number, "an integer")
    if number not in (0, RANK) and number not in _POOLING:
        raise UnsupportedError(f"{gguf.path.name}: {arch}.pooling_type = {number} is unknown.", remedy=Remedy.POOLING)
    return _POOLING.get(number)


def scored_pooling(gguf: GGUFFile, *, generates: bool) -> Pooling:
    """The pooling before a head that scores texts."""
    if generates:
        return Pooling.LAST
    arch = gguf.get("general.architecture", "")
    # llama.cpp's default of the key
    number = gguf.get(f"{arch}.classifier.pooling_type", 1 if arch == "modern-bert" else 2)
    if number not in (1, 2):
        raise wrong(gguf, f"{arch}.classifier.pooling_type", number, "1 (mean) or 2 (first token)")
    return _POOLING[number]


class Pooled:
    """Accumulates the vector of one text from its rows. The bits do not depend on how the rows are cut."""

    def __init__(self, pooling: Pooling) -> None:
        self.pooling, self.n_rows = pooling, 0
        self._sum: np.ndarray | None = None

    def add(self, rows: np.ndarray) -> None:
        """Add the rows of further tokens, f32 [n, n_embd], that `Pooling.outputs` selects."""
        if not len(rows):
            return
        self.n_rows += len(rows)
        if self._sum is None:
            self._sum = rows.sum(axis=0, dtype=np.float64) if len(rows) > 1 else rows[0].astype(np.float64)
        else:  # one after the other, the order in which numpy sums all rows
            for row in rows:
                self._sum += row

    @property
    def vector(self) -> np.ndarray:
        """The vector, f64 [n_embd], after all rows were added. Raises HybridError if it is not finite, or zero."""
        assert self._sum is not None
        if not np.isfinite(self._sum).all() or not self._sum.any():
            what = "is zero" if np.isfinite(self._sum).all() else "holds NaN or infinity"
            raise HybridError(
                f"the vector of a text {what}: the model's weights are damaged or out of range. "
                "Convert the model again.",
                remedy=Remedy.VERIFY,
            )
        return self._sum / self.n_rows if self.pooling is Pooling.MEAN else self._sum


def finished(rows: np.ndarray, *, normalize: bool, dimensions: int | None = None) -> np.ndarray:
    """Vectors f64 [n, n_embd] as f32, cut to their first `dimensions` values (Matryoshka, arXiv:2205.13147), then
    scaled to length 1."""
    cut = rows if dimensions is None else rows[:, :dimensions].copy()
    return (normalized(cut) if normalize else cut).astype(np.float32)


def max_similarity(query: np.ndarray, document: np.ndarray) -> float:
    """The score of a document in late interaction (ColBERT, arXiv:2004.12832): for each vector of the query, f32
    [tok, n], its largest product with a vector of the document; their sum."""
    return float((query.astype(np.float64) @ document.astype(np.float64).T).max(axis=1).sum())


def normalized(rows: np.ndarray) -> np.ndarray:
    """Scale each row, f64 [n, n_embd], to length 1 in place, unless it is zero."""
    length = np.sqrt(np.square(rows).sum(axis=1, keepdims=True))
    np.divide(rows, length, out=rows, where=length > 0)
    return rows
