"""The largest logits without sorting all, the order of many, and the cut of top_p."""

import functools
from collections.abc import Iterator

import numpy as np

_STRIDE = 64  # logits that share a maximum in `largest`: few enough maxima, and few logits that reach the edge
_FEW = 1 << 16  # logits that are compared with an edge as fast as those of the few parts that reach it are found
_SHORT = 4096  # values that are sorted stably as fast as in two steps


@functools.lru_cache(4)
def every(n: int) -> np.ndarray:
    """All ids, not to be written to."""
    ids = np.arange(n)
    ids.flags.writeable = False
    return ids


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
    if len(logits) <= _FEW:
        found: np.ndarray = (logits >= edge).nonzero()[0]
        return found
    columns = (maxima >= edge).nonzero()[0]
    rows, places = np.divmod((parts[:, columns] >= edge).ravel().nonzero()[0], len(columns))
    ids = rows * m + columns[places]
    rest = (logits[m * _STRIDE :] >= edge).nonzero()[0]
    return np.concatenate([ids, m * _STRIDE + rest]) if len(rest) else ids


def largest(logits: np.ndarray, n: int) -> np.ndarray:
    """Ids of the n largest logits by falling logit, equal ones (at the edge too) by id."""
    ids = _reaching(logits, n)
    found: np.ndarray = ids[falling(logits[ids])[:n]]
    return found


def falling(values: np.ndarray) -> np.ndarray:
    """Places from the largest to the smallest, equal ones in their order: np.argsort(-values, kind="stable"), which is
    many times slower than numpy's sort that leaves the order of equal ones open."""
    if len(values) < _SHORT:
        return np.argsort(-values, kind="stable")
    order = np.argsort(-values)
    ordered = values[order]
    same = ordered[1:] == ordered[:-1]
    if same.any():
        # those with a neighbour of their value: a run of them gets its places in rising order
        tied = np.zeros(len(values), bool)
        tied[1:] = same
        tied[:-1] |= same
        at = tied.nonzero()[0]
        order[at] = order[at[np.lexsort((order[at], -ordered[at]))]]
    return order


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
