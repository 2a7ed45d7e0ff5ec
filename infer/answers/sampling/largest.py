"""The largest logits without a full sort, the order of many, and the cut of top_p."""

import functools
from collections.abc import Iterator

import numpy as np

_STRIDE = 64  # logits per maximum in `largest`: gives few maxima, and few logits that reach the edge
_FEW = 1 << 16  # up to this many logits, comparing all with an edge is as fast as only the parts that reach it
_SHORT = 4096  # up to this many values, one stable sort is as fast as two steps


@functools.lru_cache(4)
def every(n: int) -> np.ndarray:
    """All ids, read-only."""
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
    # n of the m parts' maxima reach the n-th of them: no smaller logit is among the n largest
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
    """Ids of the n largest logits by falling logit, equal ones (also at the edge) by id."""
    ids = _reaching(logits, n)
    found: np.ndarray = ids[falling(logits[ids])[:n]]
    return found


def falling(values: np.ndarray) -> np.ndarray:
    """Indices from the largest to the smallest value, equal ones in their order: as np.argsort(-values, kind="stable"),
    but many times faster.
    """
    if len(values) < _SHORT:
        return np.argsort(-values, kind="stable")
    order = np.argsort(-values)
    ordered = values[order]
    same = ordered[1:] == ordered[:-1]
    if same.any():
        # values with an equal neighbour: each run of them gets its indices in rising order
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
    """The fewest of the sorted tokens whose weights reach `mass`, without tokens whose logit is below `floor`."""
    n = int(weights.cumsum().searchsorted(mass, side="left")) + 1
    n = max(1, min(n, int(np.count_nonzero(values >= floor))))
    return tokens[:n], values[:n]
