"""The largest logits without sorting all, and the cut of top_p."""

from collections.abc import Iterator

import numpy as np

_STRIDE = 64  # logits that share a maximum in `largest`: few enough maxima, and few logits that reach the edge


def growing(first: int, last: int) -> Iterator[int]:
    n = first
    while n < last:
        yield n
        n *= 8
    yield last


def _reaching(logits: np.ndarray, n: int) -> np.ndarray:
    """Ids, ascending, of the logits that may be among the n largest: these and few more."""
    if n >= len(logits):
        return np.arange(len(logits))
    m = len(logits) // _STRIDE
    if n > m:
        return np.flatnonzero(logits >= np.partition(logits, len(logits) - n)[len(logits) - n])
    # n of the maxima of m parts reach the n-th of them: no smaller logit is among the n largest
    parts = logits[: m * _STRIDE].reshape(_STRIDE, m)
    maxima = parts.max(axis=0)
    edge = np.partition(maxima, m - n)[m - n]
    columns = np.flatnonzero(maxima >= edge)
    rows, places = np.nonzero(parts[:, columns] >= edge)
    rest = m * _STRIDE + np.flatnonzero(logits[m * _STRIDE :] >= edge)
    return np.concatenate([rows * m + columns[places], rest])


def largest(logits: np.ndarray, n: int) -> np.ndarray:
    """Ids of the n largest logits by falling logit, equal ones (at the edge too) by id."""
    ids = _reaching(logits, n)
    return ids[np.argsort(-logits[ids], kind="stable")[:n]]


def descending(logits: np.ndarray, n: int, top: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The n largest: ids, logits, and weights exp(logit - top) in f64."""
    tokens = largest(logits, n)
    values = logits[tokens]
    return tokens, values, np.exp(values.astype(np.float64) - top)


def until(
    tokens: np.ndarray, values: np.ndarray, weights: np.ndarray, mass: float, floor: float
) -> tuple[np.ndarray, np.ndarray]:
    """The fewest of the sorted tokens whose weights reach `mass`, of those with a logit of at least `floor`."""
    n = int(weights.cumsum().searchsorted(mass, side="left")) + 1
    n = max(1, min(n, int(np.count_nonzero(values >= floor))))
    return tokens[:n], values[:n]
